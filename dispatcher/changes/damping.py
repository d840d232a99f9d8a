"""What of the network counts as lost, from what southbound processes tell. Pure.

A switch is lost when its connection is for a while, a link as soon as a port of it is down. What
comes back is used again when it has stayed for a while, which doubles each time that it was lost:
something that comes and goes is left alone.
"""

from math import inf
from typing import TypeVar

from msgspec import Struct

from configurators.store.model import Lost, NetworkDoc
from sdn.topology import Link

T = TypeVar("T")


class Sight(Struct, frozen=True):
    """What is told of the network at some moment."""

    up: frozenset[str]
    down: frozenset[str]
    ports_down: frozenset[tuple[str, int]]


class Patience(Struct, frozen=True):
    """How long to wait; all times are in seconds."""

    down_after: float = 3.0  # for a switch whose connection is lost, and most others' are not
    absent_after: float = 30.0  # for one that was never seen, or if more than half are away
    back_after: float = 2.0  # before something that has come back is used again
    longest: float = 600.0  # the same for what was lost again and again; then that is forgotten


class _Thing(Struct):
    """A switch or a link."""

    down: bool | None = None  # None: nobody knows
    since: float = 0.0  # when that began
    seen: bool = False  # up, by the process that tells of it now
    lost: bool = False
    times: int = 0  # that it was lost lately
    lost_at: float = 0.0


class Damper:
    """Remembers what was seen of switches and links. The clock is the caller's."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._switches: dict[str, _Thing] = {}
        self._links: dict[Link, _Thing] = {}
        self._most_away_at = -inf  # when more than half of the switches were, lately

    def see(self, doc: NetworkDoc, sight: Sight, now: float) -> None:
        """Take up what is told now."""
        self._look_for_most(doc, now)  # as they were until now
        for switch in doc.switches:
            name = switch.id
            down = False if name in sight.up else True if name in sight.down else None
            _note(_of(self._switches, name, name in doc.lost.switches, now), down, now)
        for link in doc.links:
            if not sight.ports_down.isdisjoint(link.ends):
                down = True
            else:
                down = False if {link.a, link.b} <= sight.up else None
            _note(_of(self._links, link, link in doc.lost.links, now), down, now)

    def lost(self, doc: NetworkDoc, now: float) -> Lost:
        """What counts as lost now."""
        patience = self._patience
        self._look_for_most(doc, now)
        switches = self._known(doc)
        links = {link: self._links[link] for link in doc.links if link in self._links}
        for thing in switches.values():
            # Those that come back last were cut off like the others.
            alone = now - max(thing.since, self._most_away_at)
            quick = thing.seen and alone >= patience.down_after
            self._judge(thing, 0.0 if quick else patience.absent_after, now)
        for thing in links.values():
            self._judge(thing, 0.0, now)
        return Lost(
            tuple(name for name, thing in switches.items() if thing.lost),
            tuple(link for link, thing in links.items() if thing.lost),
        )

    def _known(self, doc: NetworkDoc) -> dict[str, _Thing]:
        return {s.id: self._switches[s.id] for s in doc.switches if s.id in self._switches}

    def _look_for_most(self, doc: NetworkDoc, now: float) -> None:
        """If most switches are away, it is more likely that we are cut off."""
        switches = self._known(doc)
        away = sum(thing.lost or thing.down is True for thing in switches.values())
        if 2 * away > len(switches):
            self._most_away_at = now

    @property
    def calm(self) -> bool:
        """Whether nothing is lost or about to be: time alone changes nothing."""
        things = (*self._switches.values(), *self._links.values())
        return not any(thing.lost or thing.down for thing in things)

    def _judge(self, thing: _Thing, limit: float, now: float) -> None:
        patience = self._patience
        lasted = now - thing.since
        if thing.lost:
            hold = min(patience.back_after * 2.0 ** min(thing.times - 1, 60), patience.longest)
            thing.lost = thing.down is not False or lasted < hold
        elif thing.down and lasted >= limit:
            forgotten = now - thing.lost_at > patience.longest
            thing.times = 1 if forgotten else thing.times + 1
            thing.lost, thing.lost_at = True, now


def _of(things: dict[T, _Thing], name: T, lost: bool, now: float) -> _Thing:
    thing = things.get(name)
    if thing is None:
        thing = things[name] = _Thing(None, now, False, lost, int(lost), now)
    return thing


def _note(thing: _Thing, down: bool | None, now: float) -> None:
    if down is not thing.down:
        thing.down, thing.since = down, now
        if down is not True:
            thing.seen = down is False
