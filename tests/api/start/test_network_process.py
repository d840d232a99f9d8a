"""The emulated network as a process: it follows etcd, and ends with its parent."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from api.start.children import ChildFailed, ChildProcess, keep_running
from api.start.settings.sections.processes import EtcdSettings
from api.start.settings.settings import Settings
from configurators.state.network import first_network, with_host, without_host
from configurators.store import keys
from configurators.store.documents import Wires, decode_wires, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.model import NetworkDoc, Process
from sdn.network.topologies import topology
from sdn.network.topology import Host
from sdn.openflow.protocol.events import PortChanged
from tests.etcd import TestEtcd
from tests.sdn.emulator.support import Application, Controller
from tests.support import until

LIMIT = 60.0
LINE = first_network(topology("line:3"), "legs", 1)


def settings_for(access: Access, folder: Path, **more: Any) -> Settings:
    etcd = EtcdSettings(endpoints=access.endpoints, prefix=access.prefix)
    return Settings(etcd=etcd, data_dir=folder, **more)


def child_of(settings: Settings, on_report: Callable[[Any], None] = lambda _: None) -> ChildProcess:
    (settings.data_dir / "logs").mkdir(exist_ok=True)
    orders = {"name": "network", "settings": settings.revealed(), "rest": {}}
    output = settings.data_dir / "logs" / "network.out"
    return ChildProcess("network", "api.start.network_process", orders, output, on_report=on_report)


@asynccontextmanager
async def running(
    access: Access, folder: Path, doc: NetworkDoc = LINE, **more: Any
) -> AsyncIterator[tuple[Etcd, ChildProcess]]:
    async with asyncio.timeout(LIMIT), Etcd(access) as etcd:
        await etcd.put(keys.NETWORK, encode(doc))
        child = child_of(settings_for(access, folder, **more))
        child.start()
        try:
            await child.await_ready(LIMIT)
            yield etcd, child
        finally:
            await child.stop()


async def register(etcd: Etcd, id: str, controller: Controller) -> None:
    host, port = controller.address
    process = Process(id, "127.0.0.1:1", 1, "here", openflow=f"{host}:{port}")
    await etcd.put(keys.SOUTHBOUND + id, encode(process))


async def wires(etcd: Etcd) -> Wires:
    stored = await etcd.get(keys.WIRES)
    assert stored is not None
    return decode_wires(stored.value)


async def wires_of(etcd: Etcd, hosts: set[str]) -> Wires:
    """Wait until just these hosts have wires."""

    async def wired() -> bool:
        return set(await wires(etcd)) == hosts

    await until(wired, LIMIT)
    return await wires(etcd)


async def test_switches_connect_to_the_southbound_processes_that_are_alive(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    async with (
        running(etcd_server.access(), tmp_path) as (etcd, _),
        Controller() as one,
        Controller() as other,
    ):
        await register(etcd, "one", one)
        first = await one.switches(3)
        assert set(first) == {1, 2, 3}
        await register(etcd, "other", other)
        assert set(await other.switches(3)) == {1, 2, 3}
        await etcd.delete(keys.SOUTHBOUND + "one")
        for peer in first.values():
            await peer.closed.wait()


async def test_hosts_follow_the_stored_network(etcd_server: TestEtcd, tmp_path: Path) -> None:
    async with (
        running(etcd_server.access(), tmp_path) as (etcd, _),
        Controller() as controller,
    ):
        await register(etcd, "one", controller)
        peers = await controller.switches(3)
        before = await wires_of(etcd, {"h1", "h2", "h3"})
        more = with_host(LINE, Host("h9", "s2", 50))
        await etcd.put(keys.NETWORK, encode(more))
        told = await peers[2].expect(PortChanged)
        assert (told.port.number, told.port.up) == (50, True)
        after = await wires_of(etcd, {"h1", "h2", "h3", "h9"})
        assert {host: after[host] for host in before} == before
        with Application(after["h9"]) as application:
            assert await application.join()
        moved = with_host(more, Host("h9", "s3", 51))
        await etcd.put(keys.NETWORK, encode(moved))
        told = await peers[3].expect(PortChanged)
        assert (told.port.number, told.port.up) == (51, True)
        assert await wires_of(etcd, set(after)) == after
        await etcd.put(keys.NETWORK, encode(without_host(moved, "h9")))
        assert await wires_of(etcd, set(before)) == before


async def test_killed_it_is_restarted_with_the_same_wires(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    events: list[str] = []
    async with running(etcd_server.access(), tmp_path) as (etcd, child):
        before = await wires(etcd)
        keeper = asyncio.create_task(keep_running(child, events.append))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        await child.exited.wait()
        await until(lambda: not child.exited.is_set())
        await child.await_ready(LIMIT)
        keeper.cancel()
        assert await wires(etcd) == before
    assert len(events) == 1
    assert "network has died" in events[0]


async def test_switches_can_be_slow(etcd_server: TestEtcd, tmp_path: Path) -> None:
    slow = {"switch_delay_ms": 300.0}
    one = replace(LINE, switches=LINE.switches[:1], links=(), hosts=LINE.hosts[:1])
    async with (
        running(etcd_server.access(), tmp_path, one, emulated=slow) as (etcd, _),
        Controller() as controller,
    ):
        await register(etcd, "one", controller)
        peer = await controller.switch()
        start = asyncio.get_running_loop().time()
        await peer.apply([])
        # Not a matter of how fast the machine is: it cannot be earlier, but for rounding.
        assert asyncio.get_running_loop().time() - start > 0.29


async def test_without_a_stored_network_it_says_so(etcd_server: TestEtcd, tmp_path: Path) -> None:
    child = child_of(settings_for(etcd_server.access(), tmp_path))
    child.start()
    with pytest.raises(ChildFailed, match="network: no network is stored"):
        await child.await_ready(LIMIT)


async def test_it_ends_when_the_parent_closes_its_input(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    async with running(etcd_server.access(), tmp_path) as (_, child):
        child.close_input()  # as when the parent dies
        await child.exited.wait()
