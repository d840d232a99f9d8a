"""Which events that reach a host are for which subscription: decided exactly, without I/O."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from dzflow.errors import BadInput
from dzflow.filters import Filter
from dzflow.intervals import Key
from dzflow.sdk import datagrams
from dzflow.sdk.datagrams import Datagram, Recent
from dzflow.sdk.inbox import Inbox
from dzflow.sdk.views import Expression, SpaceView

_MOST_HELD = 1_000


class Counters(Struct):
    """What this process has to do with the events of a space, and what became of them."""

    published: int = 0  # by this process
    received: int = 0
    copies: int = 0  # of these, sent by a publisher of the own host; the switches had no part
    doubles: int = 0  # dropped, as they had come before
    delivered: int = 0  # handed to a subscription; once for each
    dropped: int = 0  # for want of room at a subscription
    elsewhere: int = 0  # meant for another application of the host
    unwanted: int = 0  # outside every filter of the host: the network's false positives
    unclassified: int = 0  # one of these two, but too many came at once to tell
    malformed: int = 0  # not an event of the space

    def __add__(self, other: "Counters") -> "Counters":
        more = asdict(other)
        return Counters(**{name: n + more[name] for name, n in asdict(self).items()})

    def __sub__(self, other: "Counters") -> "Counters":
        less = asdict(other)
        return Counters(**{name: n - less[name] for name, n in asdict(self).items()})


class Want(Struct, eq=False):
    """A subscription of this process: any of its expressions; there are two during an update."""

    inbox: Inbox
    expressions: tuple[Expression, ...]

    def wants(self, view: SpaceView, keys: tuple[Key, ...]) -> bool:
        """Whether an event matches, exactly."""
        for expression in self.expressions:
            wanted = expression.filter(view)
            if wanted is not None and wanted.matches(keys):
                return True
        return False


class Unmatched(NamedTuple):
    """An event that none of our subscriptions wants."""

    view: SpaceView
    keys: tuple[Key, ...]


class Sorter:
    """Hands events to subscriptions and counts the rest.

    One thread sorts; subscriptions come and go from any thread.
    """

    def __init__(self) -> None:
        self._views: dict[tuple[int, int], SpaceView] = {}
        self._wants: dict[int, tuple[Want, ...]] = {}
        self._lock = threading.Lock()
        self._recent = Recent()
        self._counters: dict[int, Counters] = {}
        self.strange = 0  # datagrams that are no events
        self.held: deque[Datagram] = deque(maxlen=_MOST_HELD)  # of a version not known yet
        self.unmatched: deque[Unmatched] = deque()

    def see(self, view: SpaceView) -> None:
        """Know a space under one version of its index; earlier ones stay known."""
        self._views[view.number, view.version] = view

    def see_new(self, view: SpaceView) -> None:
        """Know a space under a version of its index that was not known."""
        self._views.setdefault((view.number, view.version), view)

    def view(self, number: int, version: int) -> SpaceView | None:
        """A space as it was told."""
        return self._views.get((number, version))

    def add(self, number: int, want: Want) -> None:
        """Let a subscription have its events from now on."""
        with self._lock:
            self._wants[number] = (*self._wants.get(number, ()), want)

    def remove(self, number: int, want: Want) -> None:
        """Let a subscription have no more events."""
        with self._lock:
            left = tuple(known for known in self._wants.get(number, ()) if known is not want)
            self._wants[number] = left

    def counters(self, number: int) -> Counters:
        """The counters of a space."""
        return self._counters.setdefault(number, Counters())

    def all_counters(self) -> dict[int, Counters]:
        """The counters of all spaces by number."""
        return dict(self._counters)

    def take(self, payload: bytes | None) -> None:
        """Sort what has come."""
        found = None if payload is None else datagrams.decode(payload)
        if found is None:
            self.strange += 1
            return
        counters = self.counters(found.space)
        counters.received += 1
        counters.copies += found.copied
        if self._recent.seen(found.id):
            counters.doubles += 1
        elif (found.space, found.version) in self._views:
            self._sort(found, counters)
        elif len(self.held) == _MOST_HELD:
            counters.unclassified += 1
        else:
            self.held.append(found)

    def take_held(self) -> None:
        """Sort what was held, now that more is known; what is still not known is not ours."""
        while self.held:
            found = self.held.popleft()
            counters = self.counters(found.space)
            if (found.space, found.version) in self._views:
                self._sort(found, counters)
            else:
                counters.unclassified += 1

    def classify(self, others: dict[int, list[Expression]] | None) -> None:
        """Count what we did not want, given the other filters of the host, by number of the space.

        Without them it cannot be told whose it was.
        """
        while self.unmatched:
            view, keys = self.unmatched.popleft()
            counters = self.counters(view.number)
            if others is None:
                counters.unclassified += 1
            elif _matches(others.get(view.number, ()), view, keys):
                counters.elsewhere += 1
            else:
                counters.unwanted += 1

    def _sort(self, found: Datagram, counters: Counters) -> None:
        view = self._views[found.space, found.version]
        try:
            keys = view.space.keys(found.event)
        except BadInput:
            counters.malformed += 1
            return
        wanted = False
        for want in self._wants.get(found.space, ()):
            if want.wants(view, keys):
                wanted = True
                counters.delivered += 1
                # Each gets its own: applications may change what they get.
                if not want.inbox.put(dict(found.event)):
                    counters.dropped += 1
        if wanted or found.copied:
            return  # a copy that nobody wants is no fault of the network
        if len(self.unmatched) < _MOST_HELD:
            self.unmatched.append(Unmatched(view, keys))
        else:
            counters.unclassified += 1


def _matches(expressions: Iterable[Expression], view: SpaceView, keys: tuple[Key, ...]) -> bool:
    filters: list[Filter | None] = [expression.filter(view) for expression in expressions]
    return any(wanted is not None and wanted.matches(keys) for wanted in filters)
