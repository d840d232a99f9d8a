"""The control plane as applications use it: subscribe, advertise, publish."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dzflow.sdk.core import QUEUE, TTL, Advertised, Core, Handle
from dzflow.sdk.errors import Closed
from dzflow.sdk.inbox import Event, ThreadInbox
from dzflow.sdk.rest import Rest
from dzflow.sdk.sorter import Counters
from dzflow.sdk.talk import Json


class ControlPlane(Rest):
    """An application's way to the control plane, and to events if it names its host.

    One is enough per process and host: its subscriptions share a socket. All methods can be used
    from several threads. `wire` (an emulated host's address) is asked for if it is not given,
    `interface` is needed only on a machine with several.
    """

    def __init__(
        self,
        url: str,
        host: str | None = None,
        token: str | None = None,
        *,
        interface: str | None = None,
        wire: str | None = None,
        verify: bool = True,
        ca: str | Path | None = None,
        timeout: float = 30.0,
        reports: bool = True,
    ) -> None:
        super().__init__(url, token, verify=verify, ca=ca, timeout=timeout)
        self._core = Core(self._access, self._talk, host, wire, interface, reports)

    def close(self) -> None:
        """End all subscriptions and advertisements, and close all connections."""
        try:
            self._run(self._core.close())
        finally:
            super().close()

    def subscribe(
        self,
        space: str,
        filter: Json,
        *,
        label: str | None = None,
        ttl: float | None = TTL,
        queue: int = QUEUE,
    ) -> "Subscription":
        """Get the events that match; returns when the switches have acknowledged.

        A `ttl` is renewed while this process lives. At most `queue` events wait to be taken; then
        the oldest ones are dropped.
        """
        inbox = ThreadInbox(queue)
        steps = self._core.subscribe(space, filter, label, ttl, inbox)
        return Subscription(self, self._run(steps), inbox)

    def advertise(
        self, space: str, filter: Json, *, label: str | None = None, ttl: float | None = TTL
    ) -> "Advertisement":
        """Say what will be published; returns when the switches have acknowledged."""
        return Advertisement(self, self._run(self._core.advertise(space, filter, label, ttl)))

    def advertised(self, space: str) -> Advertised:
        """What the host has advertised in a space, to publish under it without an own one."""
        return self._run(self._core.advertised(space))

    def counters(self) -> dict[str, Counters]:
        """What became of the events of each space that reached this process."""
        return self._core.counters()


class _Opened:
    """A subscription or advertisement: a context manager."""

    def __init__(self, control_plane: ControlPlane, handle: Handle) -> None:
        self._control_plane = control_plane
        self._handle = handle

    @property
    def id(self) -> str:
        """The id of its record."""
        return self._handle.kept.id

    @property
    def filter(self) -> Json:
        """The filter, as it was given."""
        return self._handle.kept.filter

    def update(self, filter: Json) -> None:
        """Replace the filter in one step; what both want or hold is never interrupted."""
        self._control_plane._run(self._control_plane._core.update(self._handle, filter))

    def close(self) -> None:
        """Unsubscribe or unadvertise."""
        self._control_plane._run(self._control_plane._core.close_one(self._handle))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Subscription(_Opened):
    """Events that match a filter, in the order they came: an iterator and a context manager."""

    def __init__(self, control_plane: ControlPlane, handle: Handle, inbox: ThreadInbox) -> None:
        super().__init__(control_plane, handle)
        self._inbox = inbox

    @property
    def dropped(self) -> int:
        """How many events were dropped because nobody took them in time."""
        return self._inbox.dropped

    def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError if none comes in time, Closed if none will come."""
        return self._inbox.get(timeout)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            return self._inbox.get()
        except Closed:
            raise StopIteration from None


class Advertisement(_Opened):
    """What an application publishes: a context manager."""

    def publish(self, event: Mapping[str, object]) -> int:
        """Send an event to all who want it; gives its id. It must match the filter."""
        return self._control_plane._core.publish(self._handle, event)

    def publish_many(self, events: Iterable[Mapping[str, object]]) -> int:
        """Send events one after the other; gives their number."""
        return sum(1 for _ in map(self.publish, events))
