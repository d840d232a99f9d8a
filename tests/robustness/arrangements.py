"""The system under test, in arrangements that differ in where faults can be injected.

`whole`: the service starts all parts itself, as with `dzflow up`. `wired`: the test starts etcd and
the emulated switches, with proxies before them. `lab`: the same with Open vSwitch (needs root).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from api.start.parts.network import switch_model
from api.start.settings.sources import load
from api.start.up import Service
from configurators.store import keys
from configurators.store.documents import decode_process, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.etcd.endpoints import socket_path
from configurators.store.etcd.errors import StoreError
from configurators.store.server.server import EtcdFailed, EtcdServer, free_ports
from configurators.streams.addresses import split_address
from sdn.emulator import EmulatedNetwork
from sdn.lab import Lab
from sdn.network.topologies import topology
from tests.robustness.proxy import Proxy

TOPOLOGY = "ring:4"
_PREFIXES = {"configurator": keys.CONFIGURATORS, "southbound": keys.SOUTHBOUND}
_WORDS = {"raylet": "/raylet", "gcs": "/gcs_server"}
_LOOK = 0.2


class System:
    """A running service; `access` goes to etcd directly, past the proxies of the service."""

    def __init__(self, service: Service, access: Access) -> None:
        self.service = service
        self.access = access
        self.network: EmulatedNetwork | None = None
        self.lab: Lab | None = None
        self.lab_lock = asyncio.Lock()
        self.proxies: Mapping[str, Proxy] = {}
        self.etcd: EtcdServer | None = None

    @property
    def url(self) -> str:
        """Where the REST interface is."""
        return self.service.url

    async def pids(self, role: str) -> list[int]:
        """The process ids that have a role now."""
        children = self.service.pids
        if role == "etcd" and self.etcd is not None:
            return [self.etcd.pid] if self.etcd.pid is not None else []
        if role == "api":
            return [pid for name, pid in children.items() if name.startswith("api")]
        if role in ("configurator", "southbound"):
            workers = _below(children.get("workers"))
            title = f"ray::{role.capitalize()}"
            return [pid for pid, command in workers.items() if command.startswith(title)]
        if role in _WORDS:
            workers = _below(children.get("workers"))
            word = _WORDS[role]
            return [pid for pid, line in workers.items() if line.split(" ")[0].endswith(word)]
        return [children[role]] if role in children else []

    async def ports(self, role: str) -> list[int]:
        """The ports at which processes of a role listen for streams."""
        try:
            async with Etcd(self.access) as etcd:
                page = await etcd.range(_PREFIXES[role])
        except StoreError:
            return []  # etcd is away, too
        return [split_address(decode_process(item.value).address)[1] for item in page.items]


def _below(root: int | None) -> dict[int, str]:
    """All descendants of a process, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(entry.name)] = int(parent)
    found: dict[int, str] = {}
    edge = {root} if root else set()
    while edge:
        edge = {pid for pid, parent in parents.items() if parent in edge}
        for pid in edge:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[pid] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def _service(folder: Path, say: Callable[[str], None], **options: Any) -> Service:
    small = {"port": 0, "data_dir": folder, "topology": TOPOLOGY, "partitions": 5}
    return Service(load(options={**small, **options}, environment={}), None, say)


@asynccontextmanager
async def _running(service: Service) -> AsyncIterator[Service]:
    await asyncio.to_thread(service.__enter__)
    try:
        yield service
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


@asynccontextmanager
async def whole(folder: Path, say: Callable[[str], None], **options: Any) -> AsyncIterator[System]:
    """A service that starts all parts itself."""
    async with _running(_service(folder, say, **options)) as service:
        yield System(service, service.access)


@asynccontextmanager
async def wired(folder: Path, say: Callable[[str], None], **options: Any) -> AsyncIterator[System]:
    """A service whose etcd and emulated switches are reached through proxies."""
    async with _proxied(folder, say, options) as (system, opened):
        to = [system.proxies["openflow"].address]
        model = switch_model(system.service.settings)
        network = EmulatedNetwork(topology(TOPOLOGY), to, model=model)
        system.network = await opened.enter_async_context(network)
        async with Etcd(system.access) as client:
            await client.put(keys.WIRES, encode(system.network.endpoints()))
        await opened.enter_async_context(_running(system.service))
        yield system


@asynccontextmanager
async def lab(folder: Path, say: Callable[[str], None], **options: Any) -> AsyncIterator[System]:
    """A service whose etcd and Open vSwitches are reached through proxies."""
    async with _proxied(folder, say, options) as (system, opened):
        to = "tcp:{}:{}".format(*system.proxies["openflow"].address)
        system.lab = await opened.enter_async_context(Lab(topology(TOPOLOGY), to))
        await opened.enter_async_context(_running(system.service))
        yield system


@asynccontextmanager
async def _proxied(
    folder: Path, say: Callable[[str], None], options: dict[str, Any]
) -> AsyncIterator[tuple[System, AsyncExitStack]]:
    """The common parts of both arrangements; the service is not started yet."""
    (openflow_port,) = free_ports(1)
    async with AsyncExitStack() as opened:
        etcd = EtcdServer(folder / "own-etcd")
        await asyncio.to_thread(etcd.start)
        opened.push_async_callback(asyncio.to_thread, etcd.stop)
        keeper = asyncio.create_task(_keep(etcd, say))
        opened.push_async_callback(_end, keeper)
        socket = socket_path(etcd.endpoint)
        assert socket is not None
        proxies = {
            "etcd": await opened.enter_async_context(Proxy(socket)),
            "openflow": await opened.enter_async_context(Proxy(("127.0.0.1", openflow_port))),
        }
        endpoint = "{}:{}".format(*proxies["etcd"].address)
        service = _service(
            folder / "service",
            say,
            data_plane="external",
            openflow={"ports": [openflow_port]},
            etcd={"endpoints": [endpoint]},
            **options,
        )
        system = System(service, etcd.access())
        system.proxies, system.etcd = proxies, etcd
        yield system, opened


async def _keep(etcd: EtcdServer, say: Callable[[str], None]) -> None:
    """Restart etcd when it was killed, as its supervisor would."""
    while True:
        await asyncio.sleep(_LOOK)
        if etcd.pid is None:
            say("etcd is restarted")
            try:
                await asyncio.to_thread(etcd.start)
            except EtcdFailed as error:
                say(str(error).splitlines()[0])  # it was killed once more


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


ARRANGEMENTS = {"whole": whole, "wired": wired, "lab": lab}
DRAWN = ("whole", "wired")
"""The arrangements that need no root; seeds choose among them."""
