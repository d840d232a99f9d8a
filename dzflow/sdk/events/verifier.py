"""Checks the events of a space that asks for tags: who published them, and whether it may; no I/O.

The control plane says which keys are valid and what each host advertises. An event that carries a
valid tag, but that the known advertisements do not explain, may belong to a newer one: it waits
until the control plane was asked again.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dzflow.event_keys import MAX_KEY, publisher_key
from dzflow.intervals import Key
from dzflow.sdk.events.datagrams import Proof
from dzflow.sdk.events.tags import ReplayWindow, TagHash
from dzflow.sdk.space_view import Expression, SpaceView

Fault = Literal["untagged", "forged", "replayed", "outside"]
"""Why an event is dropped; the names of counters, too."""

Verdict = Fault | Literal["unknown"] | None
"""A fault; `unknown` if the control plane must be asked first; None if the event is genuine."""

_LINGER = 5.0  # seconds in which events may arrive whose advertisement has ended
_MOST_STREAMS = 1_024  # of a host; each of its processes begins one a minute
_MOST_HASHES = 10_000


class Publisher(Struct, eq=False):
    """What a host advertises, and has advertised until a moment ago."""

    expressions: list[Expression]
    former: list[tuple[float, Expression]]  # until when each still counts

    def admits(self, view: SpaceView, keys: Sequence[Key], now: float) -> bool:
        """Whether an event lies within an advertisement."""
        for place, expression in enumerate(self.expressions):
            if _matches(expression, view, keys):
                if place:  # the next event probably belongs to the same advertisement
                    first = self.expressions
                    first[0], first[place] = first[place], first[0]
                return True
        return any(now < until and _matches(each, view, keys) for until, each in self.former)


class Streams:
    """The streams of a host that were seen, a bounded number of them."""

    def __init__(self) -> None:
        self._windows: dict[int, ReplayWindow] = {}
        self._floor = 0

    def has_seen(self, proof: Proof) -> bool:
        """Whether an event was seen before, or belongs to a stream that is forgotten."""
        window = self._windows.get(proof.stream)
        return proof.stream < self._floor if window is None else proof.number in window

    def add(self, proof: Proof) -> None:
        """Count an event as seen."""
        window = self._windows.get(proof.stream)
        if window is None:
            window = self._windows[proof.stream] = ReplayWindow()
            if len(self._windows) > _MOST_STREAMS:
                lowest = min(self._windows)
                del self._windows[lowest]
                self._floor = max(self._floor, lowest + 1)
        window.add(proof.number)

    def forget_before(self, oldest: int) -> bool:
        """Forget old streams, which are refused from now on; whether any is left."""
        self._floor = max(self._floor, oldest)
        self._windows = {n: window for n, window in self._windows.items() if n >= oldest}
        return bool(self._windows)


class Verifier:
    """The keys and publishers of one space, and the events that were seen."""

    def __init__(self, tolerant_until: float = 0.0) -> None:
        self._tolerant_until = tolerant_until  # events without a tag are admitted until then
        self._secrets: dict[int, bytes] = {}  # of the space, by the number of the key
        self._newest = -1
        self._oldest_stream = 0
        self._hashes: dict[tuple[str, int], TagHash] = {}
        self._publishers: dict[str, Publisher] = {}
        self._knows_publishers = False
        self._streams: dict[str, Streams] = {}

    @property
    def ready(self) -> bool:
        """Whether the control plane has told keys and publishers, once at least."""
        return bool(self._secrets) and self._knows_publishers

    @property
    def size(self) -> int:
        """How many advertisements are known."""
        return sum(len(publisher.expressions) for publisher in self._publishers.values())

    def has_key(self, number: int) -> bool:
        """Whether the key of this number is known."""
        return number in self._secrets

    def replace_keys(self, secrets: Mapping[int, bytes], newest: int, oldest_stream: int) -> None:
        """Use these secrets of the space from now on, and refuse older streams."""
        if secrets != self._secrets:
            self._secrets = dict(secrets)
            self._hashes = {}
        self._newest = newest
        self._oldest_stream = max(self._oldest_stream, oldest_stream)
        for host in list(self._streams):
            if not self._streams[host].forget_before(self._oldest_stream):
                del self._streams[host]

    def replace_publishers(self, advertised: Iterable[tuple[str, Any]], now: float) -> None:
        """Use these advertisements (host and filter of each) from now on."""
        self._knows_publishers = True
        before = self._publishers
        known = {
            host: {_text(each.source): each for each in publisher.expressions}
            for host, publisher in before.items()
        }
        found: dict[str, dict[bytes, Expression]] = {}
        for host, source in advertised:
            text = _text(source)
            mine = found.setdefault(host, {})
            if text not in mine:
                mine[text] = known.get(host, {}).get(text) or Expression(source)
        self._publishers = {
            host: Publisher(list(mine.values()), []) for host, mine in found.items()
        }
        for host, publisher in before.items():
            former = [(until, each) for until, each in publisher.former if now < until]
            for text, each in known[host].items():
                if text not in found.get(host, {}):
                    former.append((now + _LINGER, each))
            if former:
                self._publishers.setdefault(host, Publisher([], [])).former = former

    def check(self, proof: Proof | None, now: float) -> Verdict:
        """Whether an event is what its publisher sent, and arrives for the first time."""
        if proof is None:
            return None if now < self._tolerant_until else "untagged"
        if proof.key not in self._secrets:
            # The control plane may have begun to use another key a moment ago.
            next_one = (self._newest + 1) % (MAX_KEY + 1)
            return "unknown" if not self._secrets or proof.key == next_one else "forged"
        if not hmac.compare_digest(self._hash(proof).tag(proof.signed), proof.tag):
            return "forged"
        if proof.stream < self._oldest_stream:
            return "replayed"
        streams = self._streams.get(proof.host)
        return "replayed" if streams is not None and streams.has_seen(proof) else None

    def admits(self, proof: Proof | None, view: SpaceView, keys: Sequence[Key], now: float) -> bool:
        """Whether an event lies within what its publisher advertises, as far as is known."""
        if proof is None:
            return True
        publisher = self._publishers.get(proof.host)
        return publisher is not None and publisher.admits(view, keys, now)

    def add(self, proof: Proof | None) -> None:
        """Count an event as seen: it has passed all checks."""
        if proof is not None:
            streams = self._streams.get(proof.host)
            if streams is None:
                streams = self._streams[proof.host] = Streams()
            streams.add(proof)

    def _hash(self, proof: Proof) -> TagHash:
        """The hash of a publisher; those of other hosts, which anyone can make up, are not kept."""
        found = self._hashes.get((proof.host, proof.key))
        if found is None:
            found = TagHash(publisher_key(self._secrets[proof.key], proof.host))
            if proof.host in self._publishers and len(self._hashes) < _MOST_HASHES:
                self._hashes[proof.host, proof.key] = found
        return found


def _matches(expression: Expression, view: SpaceView, keys: Sequence[Key]) -> bool:
    advertised = expression.filter(view)
    return advertised is not None and advertised.matches(keys)


def _text(source: object) -> bytes:
    return msgspec.json.encode(source, order="deterministic")
