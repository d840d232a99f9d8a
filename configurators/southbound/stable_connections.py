"""Which connections of switches count when southbound processes divide the switches. Pure.

A switch that connects to another process than the one that is responsible for it has to stay for a
while before that process gets the switch. This time doubles with each loss of the connection, so
that a switch whose connection comes and goes stays where it is (damping).
"""

from collections.abc import Collection

from msgspec import Struct

from configurators.store.model import Connections


class _Connection(Struct):
    """What is known of the connection of a switch to this process."""

    since: float | None = None  # when it began; None: the switch is not connected
    losses: int = 0  # in a row
    lost_at: float = 0.0
    used: bool = False  # it was connected while this process was responsible for it


class StableConnections:
    """What a southbound process tells the others, from what was observed so far.

    Connections of switches that the process is responsible for count at once. Others count after
    `stable_after` seconds, and after `longest` at the most. Losses are forgotten when a connection
    has counted, or the switch has been away, for `longest`.
    """

    def __init__(self, stable_after: float, longest: float) -> None:
        self._stable_after = stable_after
        self._longest = longest
        self._known: dict[str, _Connection] = {}

    def observe(self, attached: Collection[str], held: Collection[str], now: float) -> Connections:
        """What to tell, if these switches are connected and these are the process's own."""
        for name in attached:
            known = self._known.setdefault(name, _Connection())
            if known.since is None:
                known.since = now
        for name, known in list(self._known.items()):
            if known.since is not None and name not in attached:
                self._note_loss(known, now)
            known.used = name in held and (known.used or known.since is not None)
            if known.since is None and not known.used and now > known.lost_at + self._longest:
                del self._known[name]
        counting = [name for name in attached if self._counts(name, held, now)]
        away = [name for name, known in self._known.items() if known.used and known.since is None]
        return Connections(tuple(sorted(counting)), tuple(sorted(held)), tuple(sorted(away)))

    def next_change(self, now: float) -> float | None:
        """When a connection will count that does not count yet; None if there is none."""
        times = (self._due(known) for known in self._known.values() if known.since is not None)
        return min((at for at in times if at > now), default=None)

    def _counts(self, name: str, held: Collection[str], now: float) -> bool:
        return name in held or now >= self._due(self._known[name])

    def _due(self, known: _Connection) -> float:
        """When a connection counts, whichever process is responsible for the switch."""
        assert known.since is not None
        wait = self._stable_after * 2.0 ** min(known.losses, 60)
        return known.since + min(wait, self._longest)

    def _note_loss(self, known: _Connection, now: float) -> None:
        lasted = now > self._due(known) + self._longest
        known.losses = 1 if lasted else known.losses + 1
        known.since, known.lost_at = None, now
