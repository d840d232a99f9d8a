"""The controller's side of one connection, without I/O: bytes in, events out, bytes to send.

A session greets the switch, asks for its features and ports, and then is ready: this is the half
that asks, `inbound` the half that listens.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from dzflow.errors import BadInput, DzflowError
from sdn.flows import FlowOp, GroupOp
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
from sdn.openflow.protocol.inbound import Inbound
from sdn.openflow.protocol.messages import FlowStat
from sdn.openflow.protocol.wire import message

T = TypeVar("T")
Build = Callable[[int, int], bytes]


class NotReady(DzflowError):
    """Nothing can be sent: the switch has not introduced itself yet, or the session is over."""


class NotSupported(BadInput):
    """The version of OpenFlow that was settled on has no such thing."""


class Sent(NamedTuple):
    """The xid of the first message of a run, and that of the barrier after it."""

    first_xid: int
    barrier_xid: int


class Session(Inbound):
    """One connection from a switch, of which the caller moves the bytes.

    Whoever calls `feed` or asks for something sends what `outgoing` returns afterwards. Asking
    returns the xid that the answer, or the error, will have.
    """

    def send_ops(self, ops: Sequence[FlowOp]) -> Sent:
        """Flow operations and a barrier after them."""
        return self._send_run(encode_ops, ops)

    def send_group_ops(self, ops: Sequence[GroupOp]) -> Sent:
        """Operations on groups and a barrier after them."""
        return self._send_run(encode_group_ops, ops)

    def send_removals(self, stats: Sequence[FlowStat]) -> Sent:
        """Deletions of exactly these entries, foreign ones too, and a barrier after them."""
        return self._send_run(encode_removals, stats)

    def send_barrier(self) -> int:
        """A barrier alone."""
        return self.send_ops(()).barrier_xid

    def request_echo(self, data: bytes = b"") -> int:
        """Asks for a sign of life."""
        return self._ask(
            Type.ECHO_REPLY, lambda version, xid: message(version, Type.ECHO_REQUEST, xid, data)
        )

    def request_role(self, role: Role, generation: int) -> int:
        """Asks for a role; the answer is RoleReply, or SwitchError if the generation is stale."""
        return self._ask(
            Type.ROLE_REPLY,
            lambda version, xid: requests.role_request(version, xid, role, generation),
        )

    def request_flow_stats(
        self,
        cookie: int = OUR_COOKIES,
        cookie_mask: int = OUR_COOKIE_MASK,
        table: int = ALL_TABLES,
    ) -> int:
        """Asks for all entries whose cookie agrees where the mask is set: ours by default."""
        return self._ask_parts(
            Multipart.FLOW,
            lambda version, xid: requests.flow_stats_request(
                version, xid, cookie, cookie_mask, table
            ),
        )

    def request_group_desc(self) -> int:
        """Asks for all groups."""
        return self._ask_parts(Multipart.GROUP_DESC)

    def request_group_features(self) -> int:
        """Asks what groups the switch can have."""
        return self._ask_parts(Multipart.GROUP_FEATURES)

    def request_table_features(self) -> int:
        """Asks what the tables can do."""
        return self._ask_parts(Multipart.TABLE_FEATURES)

    def start_flow_monitor(self, monitor: int = 1) -> int:
        """Asks to be told of every change to a table by others (1.4)."""
        self._monitoring = True
        return self._ask_monitor(monitor, on=True)

    def stop_flow_monitor(self, monitor: int = 1) -> int:
        """Asks to be told no longer; what is under way still comes."""
        return self._ask_monitor(monitor, on=False)

    def packet_out(self, port: int, data: bytes) -> int:
        """Sends a packet out of a port; there is no answer unless it is refused."""
        return self._tell(lambda version, xid: requests.packet_out(version, xid, port, data))

    def set_async(self, packet_ins: bool) -> int:
        """Turns packet-ins on or off; changes of ports and roles are always told."""
        return self._tell(lambda version, xid: requests.set_async(version, xid, packet_ins))

    def send(self, kind: Type, body: bytes) -> int:
        """Any other message that has no answer."""
        return self._tell(lambda version, xid: message(version, kind, xid, body))

    def forget(self, xid: int) -> None:
        """Wait for the answer to a request no longer; if it comes after all, it is dropped."""
        self._pending.drop(xid)

    def _ask_monitor(self, monitor: int, on: bool) -> int:
        if self.ready and self.version < V1_4:
            raise NotSupported("OpenFlow 1.3 has no flow monitor; read the tables back instead")
        return self._ask_parts(
            Multipart.FLOW_MONITOR,
            lambda version, xid: requests.flow_monitor_request(version, xid, monitor, on),
        )

    def _check_ready(self) -> None:
        if not self.ready:
            raise NotReady(
                f"the session is over: {self.closed}; wait until the switch connects again"
                if self.closed is not None
                else "the switch has not introduced itself yet; wait for the event Ready"
            )

    def _send_run(
        self, encode: Callable[[int, Sequence[T], int], bytes], items: Sequence[T]
    ) -> Sent:
        self._check_ready()
        count = len(items)
        xid = self._pending.expect(Type.BARRIER_REPLY, before=count)
        try:
            encoded = encode(self.version, items, xid - count)
        except NotEncodable:
            self._pending.drop(xid)
            raise
        self._out += (encoded, barrier(self.version, xid))
        return Sent(xid - count, xid)

    def _ask_parts(self, part: Multipart, build: Build | None = None) -> int:
        def plain(version: int, xid: int) -> bytes:
            return requests.multipart_request(version, xid, part)

        return self._ask(Type.MULTIPART_REPLY, build or plain, part)

    def _ask(self, reply: Type, build: Build, part: Multipart | None = None) -> int:
        self._check_ready()
        xid = self._pending.expect(reply, part)
        try:
            self._send(build, xid)
        except NotEncodable:
            self._pending.drop(xid)
            raise
        return xid

    def _tell(self, build: Build) -> int:
        self._check_ready()
        xid = self._pending.take()
        self._send(build, xid)
        return xid

    def _send(self, build: Build, xid: int) -> None:
        try:
            self._out.append(build(self.version, xid))
        except struct.error as error:
            raise NotEncodable(f"a number or the data is too big for a message: {error}") from error
