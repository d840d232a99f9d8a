"""Limits how many partitions a configurator works on at a time, oldest request first."""

from collections.abc import Callable
from types import TracebackType
from typing import Self


class Turns:
    """Lets at most `limit` partitions be worked on at a time.

    When one is done, the partition whose oldest task waits longest is next.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._working: set[Turn] = set()
        self._waiting: dict[Turn, None] = {}  # in the order in which they came

    def ask(self, since: float, wake: Callable[[], None]) -> "Turn":
        """Ask for a turn of a partition whose oldest task waits since then.

        The turn may be granted at once; otherwise `wake` is called when it is.
        """
        return Turn(self, since, wake)

    def enter(self, turn: "Turn") -> None:
        """Begin to wait for a turn."""
        self._waiting[turn] = None
        self._grant()

    def leave(self, turn: "Turn") -> None:
        """End a turn, or the wait for it."""
        self._waiting.pop(turn, None)
        self._working.discard(turn)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and len(self._working) < self._limit:
            first = min(self._waiting, key=lambda turn: turn.since)
            del self._waiting[first]
            self._working.add(first)
            first.grant()


class Turn:
    """The turn of one partition, from when it waits for it until it has ended.

    Use as a context manager: it ends at the end, whether it was granted or not.
    """

    __slots__ = ("_turns", "_wake", "granted", "since")

    def __init__(self, turns: Turns, since: float, wake: Callable[[], None]) -> None:
        self.since = since
        self.granted = False
        self._turns = turns
        self._wake = wake

    def __enter__(self) -> Self:
        self._turns.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._turns.leave(self)

    def grant(self) -> None:
        """Grant the turn, and wake the partition that waits for it."""
        self.granted = True
        self._wake()
