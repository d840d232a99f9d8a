"""Peers that connect, send or ask without end, and peers that do not read."""

import asyncio
import os
from pathlib import Path

import pytest

from sdn.emulator.agent import Dialling
from sdn.emulator.network import EmulatedNetwork
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.options import Admission
from sdn.openflow.protocol.constants import V1_3, Multipart, Role, Type
from sdn.openflow.protocol.wire import message
from sdn.openflow.switches.server import MAX_PORTS
from sdn.outcomes import Acknowledged
from sdn.tables.pipeline import Pipeline
from tests.certificates import Keys, make_keys
from tests.sdn.openflow import peer
from tests.sdn.southbound.planes import switch_keys
from tests.sdn.southbound.raw_peer import RawPeer
from tests.sdn.southbound.support import LINE, NAMES, WAIT, adds, all_up, rig

FEW = Admission(connections=8, address_connections=8, unfinished=4)


async def silent(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def send_much(raw: RawPeer, data: bytes, count: int = 2_000) -> None:
    """Send something again and again; ConnectionError if the driver ends the connection."""
    async with asyncio.timeout(WAIT):
        for _ in range(count):
            raw.writer.write(data)
            await raw.writer.drain()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the driver has closed the connection."""
    async with asyncio.timeout(WAIT):
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
    return True


async def test_silent_connections_do_not_keep_switches_out() -> None:
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, admission=FEW)
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver:
        held = [await silent(driver.port) for _ in range(30)]
        # The limit is twice the switches of the network: 6.
        assert all([await ended(reader) for reader, _ in held[:24]])
        async with EmulatedNetwork(LINE, [("127.0.0.1", driver.port)]):
            await all_up(driver, NAMES)
        for _, writer in held:
            writer.transport.abort()


async def test_connections_that_do_not_begin_tls_are_limited_too(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, tls=keys.server(), admission=FEW)
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver:
        before = len(os.listdir("/proc/self/fd"))
        held = [await silent(driver.port) for _ in range(30)]
        assert all([await ended(reader) for reader, _ in held[:24]])
        assert len(os.listdir("/proc/self/fd")) - before <= 30 + 8  # both ends are ours
        dialling = Dialling(tls=switch_keys(keys, LINE).client())
        async with EmulatedNetwork(LINE, [("127.0.0.1", driver.port)], dialling=dialling):
            await all_up(driver, NAMES)
        for _, writer in held:
            writer.transport.abort()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_handshake_has_to_end_in_time(tls: bool, tmp_path: Path) -> None:
    keys: Keys | None = make_keys(tmp_path) if tls else None
    admission = Admission(handshake_timeout=0.1)
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(
        port=0, timeout=WAIT, tls=keys.server() if keys else None, admission=admission
    )
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver:
        reader, writer = await silent(driver.port)
        writer.write(b"" if tls else peer.hello(V1_3))
        assert await ended(reader)
        writer.transport.abort()


async def test_peers_that_fail_again_and_again_do_not_keep_out_switches_of_their_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig(admission=Admission(failure_rate=0.001)) as r:
        caplog.clear()
        for _ in range(100):
            reader, writer = await silent(r.driver.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await ended(reader)
            writer.transport.abort()
        assert len([line for line in caplog.messages if "127.0.0.1" in line]) == 1
        assert await r.apply("s1", adds(1)) == Acknowledged()  # connected switches stay
        held = [await silent(r.driver.port) for _ in range(200)]
        r.network.agents["s2"].drop(0.1)
        await r.back("s2")
        for _, writer in held:
            writer.transport.abort()


async def test_a_peer_that_asks_and_does_not_read_is_disconnected() -> None:
    async with rig() as r, RawPeer(r.driver.port) as raw:
        raw.writer.write(peer.hello(V1_3))
        with pytest.raises(ConnectionError):
            await send_much(raw, message(V1_3, Type.ECHO_REQUEST, 7, bytes(60_000)))
        assert await r.apply("s2", adds(1)) == Acknowledged()


async def test_a_switch_that_floods_does_not_stop_the_others() -> None:
    async with rig(admission=Admission(message_rate=100)) as r:
        packets = r.network.switches["s1"].send_packet_ins
        packets(bytes(64), 1, count=20_000)
        for number in range(20):
            assert await r.apply("s2", adds(number)) == Acknowledged()
        assert "s1" in r.driver.connected()


async def test_a_switch_with_ever_new_ports_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig() as r:
        r.network.agents["s2"].drop()
        async with RawPeer(r.driver.port) as raw:
            await raw.introduce(2)
            async with asyncio.timeout(WAIT):
                for number in range(1, MAX_PORTS + 10):
                    raw.writer.write(peer.port_status(V1_3, 0, peer.port(V1_3, number)))
            await raw.until_closed()
    assert any(f"more than {MAX_PORTS} ports" in line for line in caplog.messages)


async def test_a_listing_of_empty_parts_without_end_is_cut_off() -> None:
    async with rig() as r:
        r.network.agents["s2"].drop()
        async with RawPeer(r.driver.port) as raw:
            raw.writer.write(peer.hello(V1_3))
            await raw.next()
            features = peer.header(await raw.next())
            ports = peer.header(await raw.next())
            raw.writer.write(peer.features(V1_3, features.xid, 2))
            part = peer.parts(V1_3, ports.xid, Multipart.PORT_DESC, [b"", b""])[:16]  # more follow
            raw.writer.write(part * 20_000)
            await raw.until_closed()


async def test_a_switch_that_gives_another_role_is_not_used() -> None:
    async with rig() as r:
        r.network.agents["s2"].drop()
        async with RawPeer(r.driver.port) as raw:
            await raw.introduce(2)
            while (asked := await raw.next()) and raw.received[-1] != Type.ROLE_REQUEST:
                xid = peer.header(asked).xid
                if raw.received[-1] != Type.MULTIPART_REQUEST:
                    continue
                if asked[9] == Multipart.GROUP_FEATURES:
                    raw.writer.write(peer.group_features(V1_3, xid, 0xF, 1000, 0xFFFFFFFF))
                else:
                    raw.writer.write(peer.parts(V1_3, xid, Multipart.TABLE_FEATURES, [b""]))
            xid = peer.header(asked).xid
            raw.writer.write(peer.role_reply(V1_3, xid, Role.SLAVE, 1))
            await raw.until_closed()
            assert Type.FLOW_MOD not in raw.received
