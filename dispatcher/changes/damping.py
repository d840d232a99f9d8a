"""Which switches and links count as lost, from the reports of southbound processes. Pure.

A switch is lost when it has been disconnected for a while, a link as soon as one of its ports is
down, or when it has carried no probes for a while though both its switches are connected. A switch
or link that comes back is used again when it has stayed for a while; where links are looked for, a
link is back when it has been found. That time doubles with each loss, so that one that comes and
goes stays out of use (damping).
"""

from math import inf
from typing import TypeVar

from msgspec import Struct

from configurators.store.model import Lost, NetworkDoc
from sdn.network.topology import Link

T = TypeVar("T")


class Observation(Struct, frozen=True):
    """What southbound processes report at some moment."""

    up: frozenset[str]
    down: frozenset[str]
    ports_down: frozenset[tuple[str, int]]
    silent: frozenset[tuple[str, int]] = frozenset()  # ends of links that carry no probes
    found: frozenset[Link] | None = None  # links that carry probes; None: nobody looks for them


class Patience(Struct, frozen=True):
    """How long the damper waits, in seconds."""

    down_after: float = 3.0  # a switch that is disconnected, while most others are connected
    silent_after: float = 3.0  # a link that carries no probes
    absent_after: float = 30.0  # a switch that was never seen, or when more than half are away
    back_after: float = 2.0  # a switch or link that has come back, before it is used again
    longest: float = 600.0  # the same after many losses; after it, former losses are forgotten


class _Part(Struct):
    """What is known of a switch or a link."""

    down: bool | None = None  # None: not known
    since: float = 0.0  # when that began
    seen: bool = False  # up, by the process that reports it now
    ever: bool = False  # up, at any time
    lost: bool = False
    silent: bool = False  # of a link: its ports are up, but it carries no probes
    times: int = 0  # how often it was lost lately
    lost_at: float = 0.0


class Damper:
    """Decides which switches and links are lost, from all observations so far."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._switches: dict[str, _Part] = {}
        self._links: dict[Link, _Part] = {}
        self._present: list[_Part] = []  # those of the network when it was observed last
        self._most_away_at = -inf  # when more than half of the switches were away last

    def observe(self, doc: NetworkDoc, observed: Observation, now: float) -> None:
        """Note what is observed now."""
        self._note_if_most_are_away(doc, now)  # before the change
        for switch in doc.switches:
            name = switch.id
            down = False if name in observed.up else True if name in observed.down else None
            _note(_of(self._switches, name, name in doc.lost.switches, now), down, now)
        for link in doc.links:
            both_up = {link.a, link.b} <= observed.up
            port_down = not observed.ports_down.isdisjoint(link.ends)
            part = _of(self._links, link, link in doc.lost.links, now)
            # Its ports may be up because something else is plugged in there.
            missing = part.lost and link not in doc.unprobed and not _is_found(link, observed)
            # A process that stops sends no probes of its switches, which go on forwarding.
            silent = both_up and (missing or not observed.silent.isdisjoint(link.ends))
            down = True if port_down or silent else False if both_up else None
            part.silent = silent and not port_down
            _note(part, down, now)
        self._present = [self._switches[switch.id] for switch in doc.switches]
        self._present += [self._links[link] for link in doc.links]
        since = now - self._patience.longest
        _forget(self._switches, {switch.id for switch in doc.switches}, since)
        _forget(self._links, set(doc.links), since)

    def lost(self, doc: NetworkDoc, now: float) -> Lost:
        """The switches and links that count as lost now."""
        patience = self._patience
        self._note_if_most_are_away(doc, now)
        switches = self._known(doc)
        links = {link: self._links[link] for link in doc.links if link in self._links}
        for part in switches.values():
            # The switches that come back last were cut off like the others.
            alone = now - max(part.since, self._most_away_at)
            quick = part.seen and alone >= patience.down_after
            self._judge(part, 0.0 if quick else patience.absent_after, now)
        for part in links.values():
            self._judge(part, patience.silent_after if part.silent else 0.0, now)
        return Lost(
            tuple(name for name, part in switches.items() if part.lost),
            tuple(link for link, part in links.items() if part.lost),
        )

    def _known(self, doc: NetworkDoc) -> dict[str, _Part]:
        return {s.id: self._switches[s.id] for s in doc.switches if s.id in self._switches}

    def _note_if_most_are_away(self, doc: NetworkDoc, now: float) -> None:
        """If most switches are away, it is more likely that the southbound process is cut off.

        Switches that are lost and were never there, such as those that an operator has declared
        before they are connected, say nothing about that.
        """
        known = [part for part in self._known(doc).values() if part.ever or not part.lost]
        away = sum(part.lost or part.down is True for part in known)
        if 2 * away > len(known):
            self._most_away_at = now

    @property
    def calm(self) -> bool:
        """Whether nothing is lost or about to be, so that time alone changes nothing."""
        return not any(part.lost or part.down for part in self._present)

    def _judge(self, part: _Part, limit: float, now: float) -> None:
        patience = self._patience
        lasted = now - part.since
        if part.lost:
            hold = min(patience.back_after * 2.0 ** min(part.times - 1, 60), patience.longest)
            part.lost = part.down is not False or lasted < hold
        elif part.down and lasted >= limit:
            forgotten = now - part.lost_at > patience.longest
            part.times = 1 if forgotten else part.times + 1
            part.lost, part.lost_at = True, now


def _is_found(link: Link, observed: Observation) -> bool:
    """Whether a link carries probes, if anybody looks for links."""
    return observed.found is None or link in observed.found


def _of(parts: dict[T, _Part], name: T, lost: bool, now: float) -> _Part:
    part = parts.get(name)
    if part is None:
        part = parts[name] = _Part(None, now, lost=lost, times=int(lost), lost_at=now)
    return part


def _note(part: _Part, down: bool | None, now: float) -> None:
    if down is not part.down:
        part.down, part.since = down, now
        part.ever = part.ever or down is False
        if down is not True:
            part.seen = down is False


def _forget(parts: dict[T, _Part], present: set[T], since: float) -> None:
    """Forget what the network no longer has, unless it was lost lately: it may come back."""
    for name in parts.keys() - present:
        if parts[name].lost_at < since:
            del parts[name]
