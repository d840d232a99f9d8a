"""What a control plane's client does, as conversations; the same for threads and for tasks."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dzflow.filters import parse_filter
from dzflow.sdk.errors import Closed, NoHost, NotFound, OutsideAdvertisement
from dzflow.sdk.inbox import Inbox
from dzflow.sdk.links import EmulatedLink, Link, MulticastLink
from dzflow.sdk.rest import Access
from dzflow.sdk.sorter import Counters, Want
from dzflow.sdk.station import Kept, Station
from dzflow.sdk.talk import Json, Kind, Steps, Talk, Wait
from dzflow.sdk.views import Expression, SpaceView

TTL = 60.0  # seconds until a record ends whose application has crashed
PATIENCE = 5.0  # seconds to end what is open when everything is closed; a ttl ends the rest
QUEUE = 10_000  # events that may wait at a subscription


class Handle:
    """A subscription or advertisement of this application."""

    def __init__(self, station: Station, kept: Kept, want: Want | None, view: SpaceView) -> None:
        self.station = station
        self.kept = kept
        self.want = want
        self.number = view.number
        self.expression = Expression(kept.filter)

    @property
    def view(self) -> SpaceView:
        """The space as it is now."""
        view = self.station.view(self.kept.space)
        assert view is not None
        return view


class Advertised:
    """What a host has advertised in a space: events within it can be published."""

    def __init__(self, station: Station, space: str, expressions: list[Expression]) -> None:
        self._station = station
        self._space = space
        self._expressions = expressions

    def publish(self, event: Mapping[str, object]) -> int | None:
        """Publish an event; gives its id, or None if nothing that is advertised holds it."""
        view = self._station.view(self._space)
        assert view is not None
        keys = view.space.keys(event)
        for expression in self._expressions:
            advertised = expression.filter(view)
            if advertised is not None and advertised.matches(keys):
                return self._station.send(view, keys, event)
        return None


class Core:
    """Subscriptions and advertisements of one application on one host."""

    def __init__(
        self,
        access: Access,
        talk: Talk,
        host: str | None,
        wire: str | None,
        interface: str | None,
        reports: bool,
    ) -> None:
        self._access = access
        self._talk = talk
        self._host = host
        self._wire = wire
        self._interface = interface
        self._reports = reports
        self._lock = threading.Lock()
        self._station: Station | None = None
        self._handles: set[Handle] = set()
        self._closed = False

    # Opening

    def subscribe(
        self, space: str, source: Json, label: str | None, ttl: float | None, inbox: Inbox
    ) -> Steps[Handle]:
        """Subscribe; events come to the inbox."""
        station = yield from self._at_host()
        view = yield from self._view(station, space)
        parse_filter(view.space, source)
        want = Want(inbox, (Expression(source),))
        yield Wait(station.joining(self._access.timeout))
        # Before the switches are told, so that nothing is missed of what they send.
        station.sorter.add(view.number, want)
        try:
            kept = yield from self._begin("subscription", space, source, label, ttl)
        except BaseException:
            station.sorter.remove(view.number, want)
            raise
        return self._opened(Handle(station, kept, want, view))

    def advertise(
        self, space: str, source: Json, label: str | None, ttl: float | None
    ) -> Steps[Handle]:
        """Advertise."""
        station = yield from self._at_host()
        view = yield from self._view(station, space)
        parse_filter(view.space, source)
        kept = yield from self._begin("advertisement", space, source, label, ttl)
        return self._opened(Handle(station, kept, None, view))

    def advertised(self, space: str) -> Steps["Advertised"]:
        """All that the host has advertised in a space until now, by whatever application."""
        station = yield from self._at_host()
        yield from self._view(station, space)
        query = {"host": self._host, "space": space, "state": "active"}
        records = yield from self._talk.items("/advertisements", query)
        return Advertised(station, space, [Expression(record["filter"]) for record in records])

    # Using

    def publish(self, handle: Handle, event: Mapping[str, object]) -> int:
        """Publish an event; gives its id."""
        if handle.kept.closed:
            raise Closed("the advertisement is closed; advertise again to publish")
        view = handle.view
        keys = view.space.keys(event)
        advertised = handle.expression.filter(view)
        if advertised is None or not advertised.matches(keys):
            text = f"the event lies outside what {handle.kept.id} advertises"
            raise OutsideAdvertisement(f"{text}; the switches would drop it: widen the filter")
        return handle.station.send(view, keys, event)

    def update(self, handle: Handle, source: Json) -> Steps[None]:
        """Replace the filter; what both filters want is never interrupted."""
        kept, want = handle.kept, handle.want
        if kept.closed:
            raise Closed("it is closed; open another one with the new filter")
        parse_filter(handle.view.space, source)
        before, after = handle.expression, Expression(source)
        if want is not None:
            want.expressions = (before, after)
        try:
            yield from self._talk.update(kept.kind, kept.id, source)
        except BaseException:
            if want is not None:
                want.expressions = (before,)
            raise
        kept.filter, handle.expression = source, after
        if want is not None:
            want.expressions = (after,)

    def counters(self) -> dict[str, Counters]:
        """What became of the events of each space that is in use here."""
        return self._station.counters() if self._station is not None else {}

    def strange(self) -> int:
        """How many datagrams came that are no events."""
        return self._station.sorter.strange if self._station is not None else 0

    # Closing

    def close_one(self, handle: Handle) -> Steps[None]:
        """End a subscription or advertisement, if it has not ended."""
        if not self._let_go(handle):
            return
        with suppress(NotFound):  # its time was over, or somebody else has ended it
            yield from self._talk.end(handle.kept.kind, handle.kept.id)

    def close(self) -> Steps[None]:
        """End all that is open, and everything in the background."""
        with self._lock:
            self._closed = True
            station, handles = self._station, list(self._handles)
            self._station = None
        if station is None:
            return
        try:
            kinds: tuple[Kind, ...] = ("subscription", "advertisement")
            for kind in kinds:
                mine = [handle for handle in handles if handle.kept.kind == kind]
                ids = [handle.kept.id for handle in mine if self._let_go(handle)]
                if ids:
                    yield from self._talk.end_all(kind, ids, PATIENCE)
        finally:
            yield Wait(station.close())
            station.closed()

    def _let_go(self, handle: Handle) -> bool:
        with self._lock:
            known = handle in self._handles
            self._handles.discard(handle)
        if known:
            handle.station.drop(handle.kept)
            if handle.want is not None:
                handle.station.sorter.remove(handle.number, handle.want)
                handle.want.inbox.close()
        return known

    # Parts

    def _begin(
        self, kind: Kind, space: str, source: Json, label: str | None, ttl: float | None
    ) -> Steps[Kept]:
        assert self._host is not None
        record = yield from self._talk.begin(kind, self._host, space, source, label, ttl)
        return Kept(kind, space, source, label, ttl, record["id"])

    def _opened(self, handle: Handle) -> Handle:
        with self._lock:
            if self._closed:  # meanwhile, by another thread; its ttl ends the record
                raise Closed("the control plane's client is closed; make another one")
            handle.station.keep(handle.kept)
            self._handles.add(handle)
        return handle

    def _at_host(self) -> Steps[Station]:
        if self._station is None and not self._closed:
            link = yield from self._new_link()
            with self._lock:
                if self._closed or self._station is not None:
                    link.close()
                else:
                    assert self._host is not None
                    mend = self._wire is None
                    self._station = Station(self._access, self._host, link, mend, self._reports)
        if self._closed or self._station is None:
            raise Closed("the control plane's client is closed; make another one")
        return self._station

    def _new_link(self) -> Steps[Link]:
        if self._host is None:
            raise NoHost('events need a host: ControlPlane(…, host="h1")')
        if self._wire is not None:
            return EmulatedLink(self._wire)
        for known in (yield from self._talk.items("/hosts")):
            if known["id"] == self._host:
                wire = known.get("wire")
                return EmulatedLink(wire) if wire else MulticastLink(self._interface)
        raise NoHost(f"the control plane knows no host {self._host!r}")

    def _view(self, station: Station, name: str) -> Steps[SpaceView]:
        view = station.view(name)
        if view is not None:
            return view
        station.watch(name)  # first, so that no change is missed in between
        told: dict[str, Any] = yield from self._talk.space(name)
        return station.learn(told)
