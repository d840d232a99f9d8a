"""Assigns xids, and keeps track of the answers that are still to come."""

from msgspec import Struct, field

from dzflow.errors import DzflowError
from sdn.openflow.protocol.constants import MAX_XID, Multipart, Type
from sdn.openflow.protocol.messages import GroupDesc, Port, TableFeature

MAX_PENDING = 4096


class TooManyRequests(DzflowError):
    """The switch owes more answers than we keep track of; wait for some, or drop the connection."""


class Request(Struct):
    """An answer that is still to come, and the parts of it that have come.

    Messages that are acknowledged by it, like those before a barrier, have the xids from `first`.
    """

    first: int
    reply: Type
    part: Multipart | None = None
    entries: int = 0
    items: list[Port | GroupDesc | TableFeature] = field(default_factory=list)


class Pending:
    """Assigns xids from 1 on, and again from 1 after the last, but none that is still pending."""

    def __init__(self, first_xid: int = 1) -> None:
        self._next = first_xid
        self._lapped = False
        self._requests: dict[int, Request] = {}

    def take(self, count: int = 1) -> int:
        """The first of some xids in a row."""
        first = self._within(self._next, count)
        while self._lapped and (taken := self._taken(first, count)):
            first = self._within(max(taken) + 1, count)
        self._next = first + count
        return first

    def expect(self, reply: Type, part: Multipart | None = None, before: int = 0) -> int:
        """The xid of a message that will be answered, after as many that will not be."""
        if len(self._requests) >= MAX_PENDING:
            raise TooManyRequests(
                f"{MAX_PENDING} requests to the switch are unanswered;"
                " wait for some, or drop the connection"
            )
        first = self.take(before + 1)
        self._requests[first + before] = Request(first, reply, part)
        return first + before

    def find(self, xid: int, reply: Type, part: Multipart | None = None) -> Request | None:
        """The request of such an answer; None if there is none."""
        request = self._requests.get(xid)
        if request and (request.reply, request.part) == (reply, part):
            return request
        return None

    def settle(self, xid: int, reply: Type, part: Multipart | None = None) -> Request | None:
        """The request of such an answer, which is no longer pending then."""
        request = self.find(xid, reply, part)
        if request:
            del self._requests[xid]
        return request

    def drop(self, xid: int) -> Request | None:
        """Forget a pending request."""
        return self._requests.pop(xid, None)

    def clear(self) -> None:
        """Forget all pending requests."""
        self._requests.clear()

    def __len__(self) -> int:
        return len(self._requests)

    def _within(self, first: int, count: int) -> int:
        if first + count - 1 <= MAX_XID:
            return first
        # A run does not wrap around, so that comparing tells whether an xid belongs to it.
        self._lapped = True
        return 1

    def _taken(self, first: int, count: int) -> list[int]:
        return [
            xid
            for xid, request in self._requests.items()
            if request.first < first + count and first <= xid
        ]
