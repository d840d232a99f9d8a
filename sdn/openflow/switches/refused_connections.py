"""The connections that were refused lately, with the reasons."""

from collections.abc import Callable

KEPT = 60.0
"""Seconds that a refusal is told: a switch that is refused tries again and again."""

MAX_KEPT = 100
"""Datapath ids with refusals; a client that may connect could claim any number of them."""


class RecentRefusals:
    """Reasons by datapath id; `clock` gives seconds, and does not go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[int, tuple[str, float]] = {}  # the oldest first

    def add(self, dpid: int, reason: str) -> None:
        """A connection was refused."""
        self._known.pop(dpid, None)
        self._known[dpid] = reason, self._clock()
        if len(self._known) > MAX_KEPT:
            del self._known[next(iter(self._known))]

    def reasons(self) -> dict[int, str]:
        """The last reason for each datapath id, by datapath id."""
        since = self._clock() - KEPT
        self._known = {dpid: seen for dpid, seen in self._known.items() if seen[1] >= since}
        return {dpid: reason for dpid, (reason, _) in sorted(self._known.items())}
