"""Reads what a switch sends: bytes in, events out.

A switch that breaks the protocol gets an error message, and its session ends; nothing else does.
"""

import re
from collections.abc import Callable, Sequence

from sdn.openflow.protocol import replies, requests
from sdn.openflow.protocol.codec import decode_flow_stats, decode_group_descs
from sdn.openflow.protocol.constants import (
    HELLO_INCOMPATIBLE,
    MORE,
    VERSIONS,
    BadRequest,
    ErrorType,
    Multipart,
    Type,
)
from sdn.openflow.protocol.events import (
    BarrierReply,
    Closed,
    EchoReply,
    Event,
    FlowStats,
    GroupDescs,
    PortChanged,
    Ready,
    SwitchError,
    TableFeatures,
)
from sdn.openflow.protocol.messages import GroupDesc, Port, TableFeature
from sdn.openflow.protocol.outbox import Outbox, TooManyAnswers
from sdn.openflow.protocol.pending import Pending, Request
from sdn.openflow.protocol.refusals import in_words
from sdn.openflow.protocol.wire import (
    HEADER,
    MAX_MESSAGE,
    MULTIPART,
    MalformedMessage,
    message,
    printable,
    read,
)

MAX_HELLO = 1024
MAX_ENTRIES = 1_000_000  # in one answer with flow statistics
MAX_ITEMS = 10_000  # ports or groups in one answer
MAX_TABLES = 256
MAX_TEXT = 100  # characters of a text that a switch sends

# A flow monitor (1.4) reports each of our own changes, too, in a message with nothing but the xid.
# They are as many as our flow-mods, and a whole series of them is skipped at once.
_OWN_UPDATES = re.compile(
    rb"(?:\x05\x13\x00\x18.{4}\x00\x10\x00[\x00\x01].{4}\x00\x08\x00\x04.{4})+", re.DOTALL
)

# Messages that a switch may send without a request, and that we do not use.
_UNUSED = frozenset(
    {
        Type.GET_CONFIG_REPLY,
        Type.FLOW_REMOVED,
        Type.GET_ASYNC_REPLY,
        Type.TABLE_STATUS,
        Type.REQUEST_FORWARD,
    }
)


class _ProtocolBroken(Exception):
    """The session has to end: the reason, and a last message for the switch."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


class Receiver:
    """Reads what a switch sends: the handshake, then answers and events.

    `version` is 0 until the handshake settles it; `closed` says why the session is over. `ignored`
    counts messages that no request has asked for and that cause no event.
    """

    def __init__(self, pending: Pending, outbox: Outbox, max_message: int = MAX_MESSAGE) -> None:
        self.version = 0
        self.ready = False
        self.closed: str | None = None
        self.ignored = 0
        self._max_message = max_message
        self._pending = pending
        self._outbox = outbox
        self._buffer = bytearray()
        self._features: replies.Features | None = None
        self._ports: tuple[Port, ...] | None = None
        self._early_changes: dict[int, PortChanged] = {}
        self._monitoring = False
        self._handlers: dict[int, Callable[[int, bytes], Sequence[Event]]] = {
            Type.ERROR: self._on_error,
            Type.ECHO_REQUEST: self._on_echo_request,
            Type.ECHO_REPLY: self._on_echo_reply,
            Type.FEATURES_REPLY: self._on_features,
            Type.PACKET_IN: self._on_packet_in,
            Type.PORT_STATUS: self._on_port_status,
            Type.MULTIPART_REPLY: self._on_multipart,
            Type.BARRIER_REPLY: self._on_barrier,
            Type.ROLE_REPLY: self._on_role,
            Type.ROLE_STATUS: self._on_role_status,
        }

    def feed(self, data: bytes) -> list[Event]:
        """The events in bytes from the switch, in order. Never raises; the last may be Closed."""
        events: list[Event] = []
        if self.closed is not None:
            return events
        self._buffer += data
        at = 0
        try:
            while length := self._length_at(at):
                if self._monitoring and (own := _OWN_UPDATES.match(self._buffer, at)):
                    at = own.end()
                    continue
                events += self._receive(bytes(memoryview(self._buffer)[at : at + length]))
                at += length
        except _ProtocolBroken as over:
            self._end(str(over), over.answer)
            events.append(Closed(str(over)))
        else:
            del self._buffer[:at]
        return events

    def eof(self) -> list[Event]:
        """The switch has closed the connection."""
        if self.closed is not None:
            return []
        reason = "the switch closed the connection"
        if self.buffered:
            reason += " in the middle of a message"
        self._end(reason)
        return [Closed(reason)]

    @property
    def buffered(self) -> int:
        """How many bytes wait for the rest of their message."""
        return len(self._buffer)

    def expect_flow_updates(self) -> None:
        """Accept reports of the flow monitor from now on."""
        self._monitoring = True

    def _length_at(self, at: int) -> int:
        """The length of the message at a position of the buffer, 0 if it is not complete yet.

        A bad message is refused as soon as its header is there.
        """
        if len(self._buffer) - at < HEADER.size:
            return 0
        version, kind, length, _ = HEADER.unpack_from(self._buffer, at)
        if not self.version and kind not in (Type.HELLO, Type.ERROR):
            raise _ProtocolBroken(
                f"the first message is of type {kind} instead of hello: not a switch?"
            )
        early_error = kind == Type.ERROR and not self.ready
        if self.version and version != self.version and not early_error:
            raise _ProtocolBroken(
                f"a message of version {version} after {self.version} was settled on",
                self._error(self._buffer[at : at + HEADER.size], BadRequest.BAD_VERSION),
            )
        limit = self._max_message if self.version else MAX_HELLO
        if not HEADER.size <= length <= limit:
            raise _ProtocolBroken(
                f"a message of type {kind} claims to have {length} bytes;"
                f" {HEADER.size} to {limit} are allowed",
                self._error(self._buffer[at : at + HEADER.size], BadRequest.BAD_LEN),
            )
        return length if at + length <= len(self._buffer) else 0

    def _receive(self, received: bytes) -> Sequence[Event]:
        try:
            return self._dispatch(received)
        except MalformedMessage as error:
            raise _ProtocolBroken(str(error), self._error(received, BadRequest.BAD_LEN)) from error

    def _dispatch(self, received: bytes) -> Sequence[Event]:
        _, kind, _, xid = HEADER.unpack_from(received)
        if not self.version and kind == Type.HELLO:
            return self._on_hello(received)
        handler = self._handlers.get(kind)
        if handler:
            return handler(xid, received)
        self.ignored += 1
        if kind not in _UNUSED:
            self._answer(self._error(received, BadRequest.BAD_TYPE))
        return ()

    def _end(self, reason: str, answer: bytes = b"") -> None:
        self.closed = reason
        self.ready = False
        if self.version:
            self._outbox.clear()  # such a switch gets no more of our messages
        self._outbox.put(answer)
        self._buffer.clear()
        self._pending.clear()
        self._early_changes.clear()

    def _answer(self, data: bytes) -> None:
        try:
            self._outbox.put_answer(data)
        except TooManyAnswers as error:
            raise _ProtocolBroken(str(error)) from error

    def _error(self, received: bytes | bytearray, code: BadRequest) -> bytes:
        _, _, _, xid = HEADER.unpack_from(received)
        version = self.version or max(VERSIONS)
        return requests.error(version, xid, ErrorType.BAD_REQUEST, code, bytes(received))

    def _ignore(self) -> Sequence[Event]:
        self.ignored += 1
        return ()

    # The handshake.

    def _on_hello(self, received: bytes) -> Sequence[Event]:
        version = replies.common_version(received)
        if version is None:
            text = "dzflow speaks OpenFlow 1.3 and 1.4; allow one of them"
            _, _, _, xid = HEADER.unpack_from(received)
            raise _ProtocolBroken(
                f"no common version: the switch offers at most {received[0]:#04x}, and {text}",
                requests.error(
                    min(max(received[0], 1), max(VERSIONS)),
                    xid,
                    ErrorType.HELLO_FAILED,
                    HELLO_INCOMPATIBLE,
                    text.encode(),
                ),
            )
        self.version = version
        xid = self._pending.expect(Type.FEATURES_REPLY)
        self._outbox.put(message(version, Type.FEATURES_REQUEST, xid))
        xid = self._pending.expect(Type.MULTIPART_REPLY, Multipart.PORT_DESC)
        self._outbox.put(requests.multipart_request(version, xid, Multipart.PORT_DESC))
        return ()

    def _on_features(self, xid: int, received: bytes) -> Sequence[Event]:
        features = replies.decode_features(received)
        if not self._pending.settle(xid, Type.FEATURES_REPLY):
            return self._ignore()
        if features.auxiliary:
            raise _ProtocolBroken(
                "an auxiliary connection; configure the switch to open the main one only"
            )
        self._features = features
        return self._finish_handshake()

    def _finish_handshake(self) -> Sequence[Event]:
        if self._features is None or self._ports is None:
            return ()
        self.ready = True
        features = self._features
        # Changes of ports that came before the list of ports are events after it, so that none is
        # missed: the last change of each port agrees with the list, or is newer.
        early = list(self._early_changes.values())
        self._early_changes.clear()
        ready = Ready(
            features.dpid, self.version, features.n_tables, features.capabilities, self._ports
        )
        return [ready, *early]

    # Messages after the handshake.

    def _on_error(self, xid: int, received: bytes) -> Sequence[Event]:
        kind, code, data = replies.decode_error(received)
        text = in_words(kind, code)
        if kind == ErrorType.HELLO_FAILED:
            text += f" ({printable(data[:MAX_TEXT])})" if data else ""
        asked = self._pending.drop(xid)
        if self.ready:
            return [SwitchError(xid, kind, code, text)]
        if asked or kind == ErrorType.HELLO_FAILED or not self.version:
            raise _ProtocolBroken(f"the switch does not introduce itself: {text}")
        return self._ignore()

    def _on_echo_request(self, xid: int, received: bytes) -> Sequence[Event]:
        self._answer(message(self.version, Type.ECHO_REPLY, xid, received[HEADER.size :]))
        return self._ignore()

    def _on_echo_reply(self, xid: int, received: bytes) -> Sequence[Event]:
        if not self._pending.settle(xid, Type.ECHO_REPLY):
            return self._ignore()
        return [EchoReply(xid, received[HEADER.size :])]

    def _on_barrier(self, xid: int, _received: bytes) -> Sequence[Event]:
        if not self._pending.settle(xid, Type.BARRIER_REPLY):
            return self._ignore()
        return [BarrierReply(xid)]

    def _on_role(self, xid: int, received: bytes) -> Sequence[Event]:
        reply = replies.decode_role(xid, received)
        return [reply] if self._pending.settle(xid, Type.ROLE_REPLY) else self._ignore()

    def _on_role_status(self, _xid: int, received: bytes) -> Sequence[Event]:
        change = replies.decode_role_status(received)
        return [change] if self.ready else self._ignore()

    def _on_packet_in(self, _xid: int, received: bytes) -> Sequence[Event]:
        packet = replies.decode_packet_in(received)
        return [packet] if self.ready else self._ignore()

    def _on_port_status(self, _xid: int, received: bytes) -> Sequence[Event]:
        change = replies.decode_port_status(self.version, received)
        if self.ready:
            return [change]
        self._early_changes[change.port.number] = change
        if len(self._early_changes) > MAX_ITEMS:
            raise _ProtocolBroken(f"more than {MAX_ITEMS} ports")
        return self._ignore()

    def _on_multipart(self, xid: int, received: bytes) -> Sequence[Event]:
        _, _, _, _, kind, flags = read(MULTIPART, received)
        more = bool(flags & MORE)
        if kind == Multipart.FLOW_MONITOR and self._monitoring:
            if not more:
                self._pending.settle(xid, Type.MULTIPART_REPLY, Multipart.FLOW_MONITOR)
            return replies.decode_flow_updates(received, MULTIPART.size)
        request = self._pending.find(xid, Type.MULTIPART_REPLY, kind)
        if not request:
            return self._ignore()
        if not more:
            self._pending.drop(xid)
        if kind == Multipart.FLOW:
            return self._on_flow_stats(xid, request, received, last=not more)
        return self._collect(xid, request, received, last=not more)

    def _on_flow_stats(
        self, xid: int, request: Request, received: bytes, last: bool
    ) -> Sequence[Event]:
        entries = decode_flow_stats(received, MULTIPART.size)
        request.entries += len(entries) or 1  # an empty part counts: there is no end of them
        if request.entries > MAX_ENTRIES:
            raise _ProtocolBroken(f"more than {MAX_ENTRIES} entries in one answer")
        return [FlowStats(xid, tuple(entries), last)]

    def _collect(self, xid: int, request: Request, received: bytes, last: bool) -> Sequence[Event]:
        """Collect the parts of an answer that makes one event."""
        items = request.items
        request.entries += 1
        match request.part:
            case Multipart.GROUP_FEATURES:
                self._pending.drop(xid)
                return [replies.decode_group_features(xid, received)]
            case Multipart.GROUP_DESC:
                items += decode_group_descs(received, MULTIPART.size)
            case Multipart.TABLE_FEATURES:
                items += replies.decode_table_features(received, MULTIPART.size)
            case Multipart.PORT_DESC:
                items += replies.decode_ports(self.version, received, MULTIPART.size)
        limit = MAX_TABLES if request.part == Multipart.TABLE_FEATURES else MAX_ITEMS
        if len(items) > limit or request.entries > MAX_ITEMS:
            raise _ProtocolBroken(f"more than {limit} ports, groups or tables in one answer")
        if not last:
            return ()
        if request.part == Multipart.GROUP_DESC:
            return [GroupDescs(xid, tuple(i for i in items if isinstance(i, GroupDesc)))]
        if request.part == Multipart.TABLE_FEATURES:
            return [TableFeatures(xid, tuple(i for i in items if isinstance(i, TableFeature)))]
        self._ports = tuple(i for i in items if isinstance(i, Port))
        return self._finish_handshake()
