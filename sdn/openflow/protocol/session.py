"""The controller's side of one connection, without I/O: bytes in, events out, bytes to send.

A session greets the switch, asks for its features and ports, and then is ready for requests. Its
`Receiver` reads what the switch sends.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from dzflow.errors import BadInput, DzflowError
from sdn.openflow.protocol import requests
from sdn.openflow.protocol.codec import (
    NotEncodable,
    barrier,
    encode_group_ops,
    encode_ops,
    encode_removals,
)
from sdn.openflow.protocol.constants import (
    ALL_TABLES,
    OUR_COOKIE_MASK,
    OUR_COOKIES,
    V1_4,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.events import Event
from sdn.openflow.protocol.messages import FlowStat
from sdn.openflow.protocol.outbox import Outbox
from sdn.openflow.protocol.pending import Pending
from sdn.openflow.protocol.receiver import Receiver
from sdn.openflow.protocol.wire import MAX_MESSAGE, message
from sdn.tables.flows import FlowOp, GroupOp

T = TypeVar("T")
Build = Callable[[int, int], bytes]


class NotReady(DzflowError):
    """Nothing can be sent: the handshake is not complete, or the session is over."""


class NotSupported(BadInput):
    """The negotiated version of OpenFlow has no such request."""


class Sent(NamedTuple):
    """The xids of the first message of a run and of the barrier after it."""

    first_xid: int
    barrier_xid: int


class Session:
    """The protocol on one connection from a switch; the caller moves the bytes.

    After each call of `feed` or of a request, the caller sends what `outgoing` returns. A request
    returns the xid that its answer, or the error, will have.
    """

    def __init__(self, first_xid: int = 1, max_message: int = MAX_MESSAGE) -> None:
        self._pending = Pending(first_xid)
        self._outbox = Outbox()
        self._receiver = Receiver(self._pending, self._outbox, max_message)
        self._outbox.put(requests.hello(self._pending.take()))

    @property
    def version(self) -> int:
        """The version of OpenFlow; 0 until the handshake settles it."""
        return self._receiver.version

    @property
    def ready(self) -> bool:
        """Whether the handshake is complete and the session is not over."""
        return self._receiver.ready

    @property
    def closed(self) -> str | None:
        """Why the session is over; None if it is not."""
        return self._receiver.closed

    @property
    def ignored(self) -> int:
        """How many messages without an event the switch has sent unasked; can be set."""
        return self._receiver.ignored

    @ignored.setter
    def ignored(self, count: int) -> None:
        self._receiver.ignored = count

    @property
    def buffered(self) -> int:
        """How many bytes from the switch wait for the rest of their message."""
        return self._receiver.buffered

    def feed(self, data: bytes) -> list[Event]:
        """The events in bytes from the switch, in order. Never raises; the last may be Closed."""
        return self._receiver.feed(data)

    def eof(self) -> list[Event]:
        """The switch has closed the connection."""
        return self._receiver.eof()

    def outgoing(self, taken: bool = True) -> bytes:
        """The bytes to be sent to the switch since the last call.

        `taken` says whether the switch has read most of the bytes before. While it has not, the
        answers to its own requests add up, and too many end the session.
        """
        return self._outbox.drain(taken)

    # Requests

    def send_ops(self, ops: Sequence[FlowOp]) -> Sent:
        """Send flow operations and a barrier after them."""
        return self._send_run(encode_ops, ops)

    def send_group_ops(self, ops: Sequence[GroupOp]) -> Sent:
        """Send operations on groups and a barrier after them."""
        return self._send_run(encode_group_ops, ops)

    def send_removals(self, stats: Sequence[FlowStat]) -> Sent:
        """Delete exactly these entries, also foreign ones; a barrier follows."""
        return self._send_run(encode_removals, stats)

    def send_barrier(self) -> int:
        """Send a barrier alone."""
        return self.send_ops(()).barrier_xid

    def request_echo(self, data: bytes = b"") -> int:
        """Request an echo."""
        return self._request(
            Type.ECHO_REPLY, lambda version, xid: message(version, Type.ECHO_REQUEST, xid, data)
        )

    def request_role(self, role: Role, generation: int) -> int:
        """Request a role; the answer is RoleReply, or SwitchError if the generation is stale."""
        return self._request(
            Type.ROLE_REPLY,
            lambda version, xid: requests.role_request(version, xid, role, generation),
        )

    def request_flow_stats(
        self,
        cookie: int = OUR_COOKIES,
        cookie_mask: int = OUR_COOKIE_MASK,
        table: int = ALL_TABLES,
    ) -> int:
        """Request all entries whose cookie agrees where the mask is set: ours by default."""
        return self._request_parts(
            Multipart.FLOW,
            lambda version, xid: requests.flow_stats_request(
                version, xid, cookie, cookie_mask, table
            ),
        )

    def request_group_desc(self) -> int:
        """Request all groups."""
        return self._request_parts(Multipart.GROUP_DESC)

    def request_group_features(self) -> int:
        """Request the features of groups."""
        return self._request_parts(Multipart.GROUP_FEATURES)

    def request_table_features(self) -> int:
        """Request the features of tables."""
        return self._request_parts(Multipart.TABLE_FEATURES)

    def start_flow_monitor(self, monitor: int = 1) -> int:
        """Request a report of each table change that others make (1.4)."""
        self._receiver.expect_flow_updates()
        return self._request_monitor(monitor, on=True)

    def stop_flow_monitor(self, monitor: int = 1) -> int:
        """Request an end of the reports; those already sent still come."""
        return self._request_monitor(monitor, on=False)

    def packet_out(self, port: int, data: bytes) -> int:
        """Send a packet out of a port; there is no answer unless the switch refuses it."""
        return self._send_unanswered(
            lambda version, xid: requests.packet_out(version, xid, port, data)
        )

    def send(self, kind: Type, body: bytes) -> int:
        """Send any other message that has no answer."""
        return self._send_unanswered(lambda version, xid: message(version, kind, xid, body))

    def forget(self, xid: int) -> None:
        """Ignore the answer to a request, if it still comes."""
        self._pending.drop(xid)

    def _request_monitor(self, monitor: int, on: bool) -> int:
        if self.ready and self.version < V1_4:
            raise NotSupported("OpenFlow 1.3 has no flow monitor; read the tables back instead")
        return self._request_parts(
            Multipart.FLOW_MONITOR,
            lambda version, xid: requests.flow_monitor_request(version, xid, monitor, on),
        )

    def _check_ready(self) -> None:
        if not self._receiver.ready:
            raise NotReady(
                f"the session is over: {self.closed}; wait until the switch connects again"
                if self.closed is not None
                else "the handshake is not complete; wait for the event Ready"
            )

    def _send_run(
        self, encode: Callable[[int, Sequence[T], int], bytes], items: Sequence[T]
    ) -> Sent:
        self._check_ready()
        version, count = self._receiver.version, len(items)
        xid = self._pending.expect(Type.BARRIER_REPLY, before=count)
        try:
            encoded = encode(version, items, xid - count)
        except NotEncodable:
            self._pending.drop(xid)
            raise
        self._outbox.put(encoded, barrier(version, xid))
        return Sent(xid - count, xid)

    def _request_parts(self, part: Multipart, build: Build | None = None) -> int:
        def plain(version: int, xid: int) -> bytes:
            return requests.multipart_request(version, xid, part)

        return self._request(Type.MULTIPART_REPLY, build or plain, part)

    def _request(self, reply: Type, build: Build, part: Multipart | None = None) -> int:
        self._check_ready()
        xid = self._pending.expect(reply, part)
        try:
            self._send(build, xid)
        except NotEncodable:
            self._pending.drop(xid)
            raise
        return xid

    def _send_unanswered(self, build: Build) -> int:
        self._check_ready()
        xid = self._pending.take()
        self._send(build, xid)
        return xid

    def _send(self, build: Build, xid: int) -> None:
        try:
            self._outbox.put(build(self.version, xid))
        except struct.error as error:
            raise NotEncodable(f"a number or the data is too big for a message: {error}") from error
