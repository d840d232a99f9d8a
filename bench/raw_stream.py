"""The limit of the southbound benchmarks: flow-mods that were encoded ahead, straight to switches.

One connection to each switch takes its own flow-mods, with a barrier after each batch, as fast as
the switch reads them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from dzflow.errors import DzflowError
from sdn.lab import Lab
from sdn.network.topology import Topology
from sdn.openflow.protocol.codec import barrier, encode_group_ops, encode_ops
from sdn.openflow.protocol.constants import V1_4, Type
from sdn.openflow.protocol.events import Ready
from sdn.openflow.protocol.session import Session
from sdn.tables.flows import Change, FlowOp, GroupOp
from sdn.tables.pipeline import Pipeline

TIMEOUT = 60.0  # seconds
_FIRST_XID = 1_000


class RawStreamRefused(DzflowError):
    """A switch has answered a flow-mod with an error, so the stream is no limit for anything."""


class _Peer(NamedTuple):
    """A switch that has connected."""

    switch: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def raw_stream(network: Topology, ops: Mapping[str, Sequence[FlowOp]], batch: int) -> float:
    """The seconds from the first byte until all barriers are answered; to all switches at once.

    The groups that entries send to are there already. RawStreamRefused if a switch refuses any
    flow-mod.
    """
    pipeline = Pipeline().extended(network)
    streams = {switch: _encode(each, batch) for switch, each in ops.items()}
    async with asyncio.timeout(TIMEOUT), _connected(network) as peers:
        for peer in peers:
            groups = pipeline.base_groups(network, peer.switch)
            added = encode_group_ops(V1_4, [GroupOp(Change.ADD, group) for group in groups], 1)
            await _stream(peer, [added + barrier(V1_4, _FIRST_XID - 1)])
        began = time.perf_counter()
        answers = await asyncio.gather(*(_stream(peer, streams[peer.switch]) for peer in peers))
        took = time.perf_counter() - began
    for peer, error in zip(peers, answers, strict=True):
        if error:
            raise RawStreamRefused(f"switch {peer.switch} answers an error: {error.hex()}")
    return took


@asynccontextmanager
async def _connected(network: Topology) -> AsyncIterator[list[_Peer]]:
    """The switches of a new lab, greeted."""
    names = {switch.dpid: switch.id for switch in network.switches}
    arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await arrived.put((reader, writer))

    # A refused switch reconnects only seconds later, so the backlog is long.
    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=4 * len(names) + 16)
    async with server:
        with Lab(network, f"tcp:127.0.0.1:{server.sockets[0].getsockname()[1]}"):
            alive: dict[asyncio.Task[None], _Peer] = {}
            while len(alive) < len(names):
                reader, writer = await arrived.get()
                session = Session()
                if ready := await _shake_hands(session, reader, writer):
                    peer = _Peer(names[ready.dpid], reader, writer)
                    task = asyncio.create_task(_keep_alive(session, peer))
                    alive[task] = peer
                    task.add_done_callback(lambda task: alive.pop(task, None))
            peers = list(alive.values())
            for task in list(alive):
                task.cancel()
            try:
                yield peers
            finally:
                for writer in writers:
                    writer.close()
                await asyncio.gather(*(w.wait_closed() for w in writers), return_exceptions=True)


def _encode(ops: Sequence[FlowOp], batch: int) -> list[bytes]:
    """Batches, each with its barrier."""
    parts: list[bytes] = []
    for start in range(0, len(ops), batch):
        part = ops[start : start + batch]
        xid = _FIRST_XID + start + len(parts)
        parts.append(encode_ops(V1_4, part, xid) + barrier(V1_4, xid + len(part)))
    return parts


async def _shake_hands(
    session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Ready | None:
    """Shake hands with a switch; None if it closes the connection."""
    while True:
        writer.write(session.outgoing())
        if not (received := await _receive(reader)):
            writer.close()
            return None
        for event in session.feed(received):
            if isinstance(event, Ready):
                writer.write(session.outgoing())
                return event


async def _keep_alive(session: Session, peer: _Peer) -> None:
    """Answer echo requests until the stream begins, or the switch closes the connection."""
    while received := await _receive(peer.reader):
        session.feed(received)
        peer.writer.write(session.outgoing())
    peer.writer.close()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """Received bytes; empty if the connection is closed."""
    try:
        return await reader.read(1 << 16)
    except ConnectionError:
        return b""


async def _stream(peer: _Peer, parts: list[bytes]) -> bytes:
    """Send all parts, and wait for their barriers; returns the first error, empty if none."""

    async def send() -> None:
        for part in parts:
            peer.writer.write(part)
            await peer.writer.drain()

    async def read_replies() -> bytes:
        left, error = len(parts), b""
        while left:
            header = await peer.reader.readexactly(8)
            body = await peer.reader.readexactly(int.from_bytes(header[2:4], "big") - 8)
            if header[1] == Type.ERROR:
                error = error or body[:4]
            left -= header[1] == Type.BARRIER_REPLY
        return error

    _, error = await asyncio.gather(send(), read_replies())
    return error
