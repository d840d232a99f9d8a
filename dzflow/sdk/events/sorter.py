"""Decides exactly which received events are for which subscription of this process; without I/O."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from dzflow.errors import BadInput
from dzflow.filters import Filter
from dzflow.intervals import Key
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.datagrams import Datagram, RecentIds
from dzflow.sdk.events.event import Event
from dzflow.sdk.events.inbox import Inbox
from dzflow.sdk.events.verifier import Fault, Verifier
from dzflow.sdk.space_view import Expression, SpaceView

_MOST_PENDING = 1_000
_TOLERANCE = 10.0  # seconds in which publishers may learn that a space asks for tags from now on


class Counters(Struct):
    """How many events of a space this process has published and received, and their fate."""

    published: int = 0  # by this process
    received: int = 0
    copies: int = 0  # of these, sent by a publisher on the same host, not by the switches
    doubles: int = 0  # dropped, because the same event had arrived before
    delivered: int = 0  # to a subscription; an event counts once for each
    dropped: int = 0  # because the subscription's queue was full
    for_other_app: int = 0  # match a filter of another application on the host
    unwanted: int = 0  # match no filter of the host: the network's false positives
    unclassified: int = 0  # one of these two, but too many arrived at once to find out
    malformed: int = 0  # do not fit the schema of the space
    untagged: int = 0  # dropped, because the space asks for tags
    forged: int = 0  # dropped, because the tag is wrong, or of a key that is not valid
    replayed: int = 0  # dropped, because they were seen before, or belong to an old stream
    outside: int = 0  # dropped: their publisher does not advertise them

    def __add__(self, other: "Counters") -> "Counters":
        more = asdict(other)
        return Counters(**{name: n + more[name] for name, n in asdict(self).items()})

    def __sub__(self, other: "Counters") -> "Counters":
        less = asdict(other)
        return Counters(**{name: n - less[name] for name, n in asdict(self).items()})

    def count(self, fault: Fault) -> None:
        """Count an event that is dropped for this reason."""
        setattr(self, fault, getattr(self, fault) + 1)


class Interest(Struct, eq=False):
    """The filters of one subscription, and its inbox; there are two filters during an update."""

    inbox: Inbox
    expressions: tuple[Expression, ...]

    def matches(self, view: SpaceView, keys: tuple[Key, ...]) -> bool:
        """Whether an event matches one of the filters, exactly."""
        return _any_matches(self.expressions, view, keys)


class Received(NamedTuple):
    """A datagram, and when it arrived."""

    datagram: Datagram
    time: float


class Unmatched(NamedTuple):
    """An event that matches no subscription of this process."""

    view: SpaceView
    keys: tuple[Key, ...]


class Sorter:
    """Puts events into the inboxes of matching subscriptions, and counts the others.

    One thread calls it, except for `count_published`.
    """

    def __init__(self, recent: RecentIds | None = None) -> None:
        self._views: dict[tuple[int, int], SpaceView] = {}  # by space and version
        self._spaces: set[int] = set()  # those that have a view
        self._interests: dict[int, tuple[Interest, ...]] = {}  # by space
        self._recent = RecentIds() if recent is None else recent
        self._lock = threading.Lock()
        self._counters: dict[int, Counters] = {}
        self.verifiers: dict[int, Verifier] = {}  # of spaces that ask for tags
        self.undecodable = 0  # datagrams that are not events
        self.unknown_version: deque[Received] = deque()  # wait until their version is known
        self.unverified: deque[Received] = deque()  # wait until keys and publishers are known
        self.unmatched: deque[Unmatched] = deque()  # wait until they are classified

    def replace_view(self, view: SpaceView, now: float) -> None:
        """Use this view for events of its version; views of other versions stay."""
        if not view.tagged:
            self.verifiers.pop(view.number, None)
        elif view.number not in self.verifiers:
            changed = view.number in self._spaces  # while this process uses the space
            self.verifiers[view.number] = Verifier(now + _TOLERANCE if changed else 0.0)
        self._views[view.number, view.version] = view
        self._spaces.add(view.number)

    def add_view(self, view: SpaceView) -> None:
        """Use this view for events of its version, unless there is one already."""
        self._views.setdefault((view.number, view.version), view)
        self._spaces.add(view.number)

    def add(self, space: int, interest: Interest) -> None:
        """Deliver the matching events of a space from now on."""
        self._interests[space] = (*self._interests.get(space, ()), interest)

    def remove(self, space: int, interest: Interest) -> None:
        """Deliver no more events."""
        left = (known for known in self._interests.get(space, ()) if known is not interest)
        self._interests[space] = tuple(left)

    def count_published(self, space: int) -> None:
        """Count an event that this process has published; from any thread."""
        with self._lock:
            self._of(space).published += 1

    def counters(self) -> dict[int, Counters]:
        """A copy of the counters of all spaces, by number."""
        with self._lock:
            return {space: found + Counters() for space, found in dict(self._counters).items()}

    def sort(self, payload: bytes | None, time: float) -> None:
        """Deliver or count what arrived at this time; None is a datagram that was not for us."""
        found = None if payload is None else datagrams.decode(payload)
        if found is None:
            self.undecodable += 1
            return
        counters = self._of(found.space)
        counters.received += 1
        counters.copies += found.copied
        self._check(Received(found, time), counters)

    def sort_unknown_versions(self, count: int) -> None:
        """Deliver the first events whose version has become known; the others have no version."""
        for _ in range(count):
            received = self.unknown_version.popleft()
            found = received.datagram
            counters = self._of(found.space)
            if (found.space, found.version) in self._views:
                self._check(received, counters)
            else:
                counters.unclassified += 1

    def sort_unverified(self, count: int) -> None:
        """Deliver those of the first events that the newest keys and advertisements admit."""
        for _ in range(count):
            received = self.unverified.popleft()
            self._check(received, self._of(received.datagram.space), asked=True)

    def classify(self, filters: dict[int, list[Expression]] | None) -> None:
        """Count unmatched events, given all filters of the host by number of the space.

        None if the filters are not known.
        """
        while self.unmatched:
            view, keys = self.unmatched.popleft()
            counters = self._of(view.number)
            if filters is None:
                counters.unclassified += 1
            elif _any_matches(filters.get(view.number, ()), view, keys):
                counters.for_other_app += 1
            else:
                counters.unwanted += 1

    def _of(self, space: int) -> Counters:
        return self._counters.setdefault(space, Counters())

    def _check(self, received: Received, counters: Counters, asked: bool = False) -> None:
        """Deliver an event that passes all checks; only then it counts as seen.

        `asked`: the control plane was asked for keys and advertisements after the event arrived.
        """
        found = received.datagram
        if found.id in self._recent:
            counters.doubles += 1
            return
        verifier = self.verifiers.get(found.space)
        if verifier is not None and not self._interests.get(found.space):
            verifier = None  # the event is only counted, and only subscribers get the keys
        if verifier is not None:
            verdict = verifier.check(found.proof, received.time)
            if verdict == "unknown":
                self._wait_for_keys(received, counters, "forged", asked and verifier.ready)
                return
            if verdict is not None:
                counters.count(verdict)
                return
        view = self._views.get((found.space, found.version))
        if view is None:
            # A space without any view is used by another application of the host.
            if found.space in self._spaces and len(self.unknown_version) < _MOST_PENDING:
                self.unknown_version.append(received)
            else:
                counters.unclassified += 1
            return
        try:
            keys = view.space.keys(found.event)
        except BadInput:
            counters.malformed += 1
            return
        if verifier is not None:
            if not verifier.admits(found.proof, view, keys, received.time):
                self._wait_for_keys(received, counters, "outside", asked and verifier.ready)
                return
            verifier.add(found.proof)
        self._recent.add(found.id)
        self._deliver(received, view, keys, counters)

    def _wait_for_keys(
        self, received: Received, counters: Counters, otherwise: Fault, asked: bool
    ) -> None:
        """Keep an event until the control plane was asked; count it if that was done, or if too
        many wait."""
        if asked or len(self.unverified) >= _MOST_PENDING:
            counters.count(otherwise)
        else:
            self.unverified.append(received)

    def _deliver(
        self, received: Received, view: SpaceView, keys: tuple[Key, ...], counters: Counters
    ) -> None:
        found = received.datagram
        matched = False
        for interest in self._interests.get(found.space, ()):
            if interest.matches(view, keys):
                matched = True
                counters.delivered += 1
                # Each subscription gets its own copy: applications may change it.
                event = Event(
                    found.event, id=found.id, space=view.space.name, received=received.time
                )
                if not interest.inbox.put(event):
                    counters.dropped += 1
        if matched or found.copied:
            return  # the network is not to blame for a copy that nobody wants
        if len(self.unmatched) < _MOST_PENDING:
            self.unmatched.append(Unmatched(view, keys))
        else:
            counters.unclassified += 1


def _any_matches(expressions: Iterable[Expression], view: SpaceView, keys: tuple[Key, ...]) -> bool:
    for expression in expressions:
        wanted: Filter | None = expression.filter(view)
        if wanted is not None and wanted.matches(keys):
            return True
    return False
