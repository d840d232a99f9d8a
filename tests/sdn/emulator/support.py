"""Controllers for emulated switches: in memory, or over TCP; and applications of hosts."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from dzflow import host_protocol
from dzflow.address import ALL, Match
from sdn.emulator.model import SOFTWARE, SwitchModel
from sdn.emulator.switch import EmulatedSwitch
from sdn.openflow.protocol.constants import V1_3, V1_4, FlowCommand
from sdn.openflow.protocol.encode import encode_ops
from sdn.openflow.protocol.events import BarrierReply, Event, FlowStats, Ready, SwitchError
from sdn.openflow.protocol.messages import FlowStat, Port
from sdn.openflow.protocol.session import Session
from sdn.tables.flows import Change, FlowEntry, FlowOp, GroupEntry, GroupOp, Output
from tests.sdn.openflow.reference import Datapath
from tests.socket_server import SocketServer

E = TypeVar("E")

LIMIT = 60.0  # seconds that anything here may take
OURS = Match(0xFF1E << 112, ALL ^ (ALL >> 16))
PORTS = [Port(n, f"s1-{n}", f"02:00:00:00:00:{n:02x}", up=True) for n in range(1, 5)]


def entry(
    bits: int = 0, length: int = 8, priority: int = 100, table: int = 1, port: int = 2, **rest: Any
) -> FlowEntry:
    """An entry for the events that begin with these bits of one of our spaces."""
    mask = ALL ^ (ALL >> (32 + length))
    match = Match(0xFF1E_0410 << 96 | bits << (96 - length), mask)
    rest.setdefault("actions", (Output(port),))
    rest.setdefault("goto", table + 1)
    return FlowEntry(table, priority, match, **rest)


def add(*entries: FlowEntry) -> list[FlowOp]:
    return [FlowOp(Change.ADD, each) for each in entries]


def delete(*entries: FlowEntry) -> list[FlowOp]:
    return [FlowOp(Change.DELETE, each) for each in entries]


def group(number: int, port: int, change: Change = Change.ADD) -> GroupOp:
    return GroupOp(change, GroupEntry(number, f"h{port}", port))


def not_strict(op: FlowOp, cookie: int = 0, cookie_mask: int = 0) -> bytes:
    """An operation on all entries within the match of one, as a flow-mod."""
    data = bytearray(encode_ops(V1_4, [op], 77))
    data[8:24] = cookie.to_bytes(8, "big") + cookie_mask.to_bytes(8, "big")
    data[25] = FlowCommand.DELETE if op.change is Change.DELETE else FlowCommand.MODIFY
    return bytes(data)


def to_controller(**match: Any) -> bytes:
    """A flow-mod that sends packets of a kind to the controllers."""
    peer = Datapath(V1_4)
    proto, parser = peer.ofproto, peer.ofproto_parser
    action = parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)
    mod = parser.OFPFlowMod(
        peer,
        priority=1000,
        buffer_id=proto.OFP_NO_BUFFER,
        match=parser.OFPMatch(**match),
        instructions=[parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, [action])],
    )
    return peer.bytes_of(mod, 1)


def set_async(version: int, packet_ins: bool) -> bytes:
    """Asks for packet-ins (as master only) and changes of ports, and nothing else."""
    wanted = 3 if packet_ins else 0
    peer = Datapath(version)
    parser = peer.ofproto_parser
    if version == V1_3:  # which has a pair for master and slave each
        return peer.bytes_of(parser.OFPSetAsync(peer, [wanted, 0], [7, 7], [0, 0]), 1)
    # Pairs for slave and master: packet-in, port status, flow removed, role status.
    masks = [0, wanted, 7, 7, 0, 0, 3, 3]
    reasons = [parser.OFPAsyncConfigPropReasons(kind, 8, mask) for kind, mask in enumerate(masks)]
    return peer.bytes_of(parser.OFPSetAsync(peer, reasons), 1)


class Wired:
    """A switch and a controller's session, joined without a network; `now` is the time."""

    def __init__(
        self,
        model: SwitchModel = SOFTWARE,
        version: int = V1_4,
        switch: EmulatedSwitch | None = None,
    ) -> None:
        self.switch = switch or EmulatedSwitch("s1", 0xD2, PORTS, model)
        self.switch.versions = (version,)
        self.now = 0.0
        self.session = Session()
        self.events: list[Event] = []
        self.frames: list[tuple[int, bytes]] = []
        self.connection = self.switch.connect()
        self.pump()
        self.ready = self.take(Ready)

    def pump(self) -> list[Event]:
        """Carry bytes to and fro until both sides are quiet; what happened meanwhile."""
        new: list[Event] = []
        while True:
            self.frames += self.switch.tick(self.now)
            up, down = self.connection.outgoing(), self.session.outgoing()
            if not up and not down:
                break
            new += self.session.feed(up)
            self.frames += self.switch.feed(self.connection, down, self.now)
        self.events += new
        return new

    def send(self, flow_mod: bytes) -> list[Event]:
        """Send any bytes; what happens then."""
        self.frames += self.switch.feed(self.connection, flow_mod, self.now)
        return self.pump()

    def take(self, kind: type[E]) -> E:
        """The next event of a kind."""
        found = next(event for event in self.events if isinstance(event, kind))
        self.events.remove(found)
        return found

    def apply(self, ops: Iterable[FlowOp]) -> list[SwitchError]:
        """Carry out operations, which must be acknowledged; the errors that they met."""
        sent = self.session.send_ops(list(ops))
        events = self.pump()
        assert BarrierReply(sent.barrier_xid) in events
        return [event for event in events if isinstance(event, SwitchError)]

    def apply_groups(self, *ops: GroupOp) -> list[SwitchError]:
        """Carry out operations on groups, which must be acknowledged."""
        sent = self.session.send_group_ops(ops)
        events = self.pump()
        assert BarrierReply(sent.barrier_xid) in events
        return [event for event in events if isinstance(event, SwitchError)]

    def stats(self, *args: int) -> list[FlowStat]:
        """The entries as the switch reports them."""
        self.session.request_flow_stats(*args)
        return [stat for e in self.pump() if isinstance(e, FlowStats) for stat in e.entries]

    def entries(self) -> set[object]:
        """All entries as the switch reports them."""
        return {stat.entry for stat in self.stats(0, 0)}


class Peer:
    """The controller's end of a connection that a switch has opened."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.session = Session()
        self.ready: Ready
        self._reader, self._writer = reader, writer
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.read = asyncio.Event()  # set whenever something was read
        self._mute = False

    async def serve(self) -> None:
        """Read until the switch is gone."""
        try:
            self.flush()
            while data := await self._reader.read(1 << 16):
                for event in self.session.feed(data):
                    self._events.put_nowait(event)
                self.flush()
                self.read.set()
        finally:
            self.closed.set()

    def flush(self) -> None:
        data = self.session.outgoing()
        if not self._mute:
            self._writer.write(data)

    def stop_answering(self) -> None:
        """Read on, but say nothing any more."""
        self._mute = True

    async def next(self) -> Event:
        """Wait for any event."""
        return await self._events.get()

    async def expect(self, kind: type[E]) -> E:
        """Wait for an event of a kind; others before it are skipped."""
        while True:
            event = await self.next()
            if isinstance(event, kind):
                return event

    async def apply(self, ops: Iterable[FlowOp]) -> list[SwitchError]:
        """Carry out operations and wait for the acknowledgement."""
        return await self._acknowledged(self.session.send_ops(list(ops)).barrier_xid)

    async def apply_groups(self, ops: Iterable[GroupOp]) -> list[SwitchError]:
        """Carry out operations on groups and wait for the acknowledgement."""
        return await self._acknowledged(self.session.send_group_ops(list(ops)).barrier_xid)

    async def _acknowledged(self, barrier: int) -> list[SwitchError]:
        self.flush()
        errors = []
        while True:
            event = await self.next()
            if isinstance(event, SwitchError):
                errors.append(event)
            if event == BarrierReply(barrier):
                return errors

    async def entries(self) -> set[object]:
        """All entries as the switch reports them."""
        self.session.request_flow_stats(0, 0)
        self.flush()
        found: set[object] = set()
        while True:
            part = await self.expect(FlowStats)
            found |= {stat.entry for stat in part.entries}
            if part.last:
                return found


class Controller:
    """Listens for switches; use as an async context manager.

    Its address is its own from the beginning, though nobody listens there before it is entered.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._server = SocketServer(self._serve, self._socket, tls)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.put_nowait(peer)
        await peer.serve()

    async def switch(self) -> Peer:
        """The next switch that introduces itself."""
        peer = await self.peers.get()
        peer.ready = await peer.expect(Ready)
        return peer

    async def switches(self, count: int) -> dict[int, Peer]:
        """So many switches by their datapath id."""
        found = [await self.switch() for _ in range(count)]
        return {peer.ready.dpid: peer for peer in found}


class Application:
    """An application of an emulated host."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._endpoint = endpoint
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(("127.0.0.1", 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send_datagram(self, data: bytes) -> None:
        self._socket.sendto(data, self._endpoint)

    async def datagram(self) -> bytes:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LIMIT):
            return await loop.sock_recv(self._socket, 4096)

    async def join(self) -> bool:
        """Join the host; whether it has room."""
        self.send_datagram(bytes((host_protocol.VERSION, host_protocol.JOIN)))
        answer = await self.datagram()
        assert answer[:2] == bytes((host_protocol.VERSION, host_protocol.JOINED))
        return bool(answer[2])

    def leave(self) -> None:
        self.send_datagram(bytes((host_protocol.VERSION, host_protocol.LEAVE)))

    def send(self, destination: int, payload: bytes) -> None:
        head = bytes((host_protocol.VERSION, host_protocol.SEND))
        self.send_datagram(head + destination.to_bytes(16, "big") + payload)

    async def received(self) -> tuple[int, bytes]:
        """The next event: its destination and its payload."""
        data = await self.datagram()
        assert data[:2] == bytes((host_protocol.VERSION, host_protocol.DELIVER))
        return int.from_bytes(data[2:18], "big"), data[18:]
