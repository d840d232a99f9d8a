"""The control plane as applications without an event loop use it: `AsyncControlPlane`, blocking.

`Client` does the work, in the process's background loop. Publishing and receiving do not cross to
that loop.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from dzflow.sdk.background import Portal
from dzflow.sdk.client import QUEUE, TTL, Client
from dzflow.sdk.errors import Closed
from dzflow.sdk.events.event import Event
from dzflow.sdk.events.inbox import ThreadInbox
from dzflow.sdk.events.sorter import Counters
from dzflow.sdk.handles import Advertised, AdvertisementHandle, Handle, SubscriptionHandle
from dzflow.sdk.rest.api_protocol import Json
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.rest.rest import RestCalls
from dzflow.sdk.space_view import SpaceView


class ControlPlane:
    """An application's access to the control plane, and to events if it names its host.

    A context manager; all methods can be used from several threads. One per process and host is
    enough: all its subscriptions share a socket. `interface` is needed only on a machine with
    several network interfaces. `endpoint` is the address of an emulated host; without it, the
    control plane is asked for it.
    """

    def __init__(
        self,
        url: str,
        host: str | None = None,
        token: str | None = None,
        *,
        interface: str | None = None,
        endpoint: str | None = None,
        verify: bool = True,
        ca: str | Path | None = None,
        timeout: float = 30.0,
        reports: bool = True,
    ) -> None:
        self._rest = AsyncRest(url, token, verify=verify, ca=ca, timeout=timeout)
        self._client = Client(
            self._rest,
            host,
            endpoint=endpoint,
            interface=interface,
            timeout=timeout,
            reports=reports,
        )
        self._portal = Portal()
        self._calls = RestCalls(self._rest, self._portal)

    @property
    def rest(self) -> RestCalls:
        """The REST interface, over the same connections."""
        return self._calls

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all subscriptions and advertisements, and close all connections."""

        async def close() -> None:
            try:
                await self._client.close()
            finally:
                await self._rest.close()

        self._portal.close(close())

    def subscribe(
        self,
        space: str,
        filter: Json,
        *,
        label: str | None = None,
        ttl: float | None = TTL,
        queue: int = QUEUE,
    ) -> "Subscription":
        """Subscribe to the events that match; returns when all switches have acknowledged.

        The SDK renews the record while this process lives; `ttl` seconds after a crash it expires.
        At most `queue` events wait for the application; then the oldest ones are dropped.
        """
        inbox = ThreadInbox(queue)
        work = self._client.subscribe(space, filter, inbox, label, ttl)
        return Subscription(self._client, self._portal, self._portal.run(work), inbox)

    def advertise(
        self, space: str, filter: Json, *, label: str | None = None, ttl: float | None = TTL
    ) -> "Advertisement":
        """Announce which events will be published; returns when all switches have acknowledged."""
        handle = self._portal.run(self._client.advertise(space, filter, label, ttl))
        return Advertisement(self._client, self._portal, handle)

    def advertised(self, space: str) -> Advertised:
        """All that the host has advertised in a space, to publish without another advertisement."""
        return self._portal.run(self._client.advertised(space))

    def counters(self) -> dict[str, Counters]:
        """By space: how many events this process has published and received, and their fate."""
        return self._client.counters()

    def undecodable(self) -> int:
        """How many datagrams reached this process that are not events."""
        return self._client.undecodable()

    def spaces(self) -> list[dict[str, Any]]:
        """All spaces."""
        return self._calls.spaces()

    def space(self, name: str) -> dict[str, Any]:
        """One space."""
        return self._calls.space(name)

    def put_space(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Create a space or change its schema; other API processes hear of it a moment later."""
        return self._calls.put_space(name, schema)

    def delete_space(self, name: str) -> None:
        """Delete a space that has no subscriptions and advertisements."""
        self._calls.delete_space(name)

    def explain(
        self,
        space: str,
        filter: Json | None = None,
        host: str | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The regions of a filter, its share of unwanted events, and the flows it would need.

        With an event, also how it would travel if the host published it.
        """
        return self._calls.explain(space, filter, host, event)


H = TypeVar("H", bound=Handle)


class _Record(Generic[H]):
    """An open subscription or advertisement: a context manager."""

    def __init__(self, client: Client, portal: Portal, handle: H) -> None:
        self._client = client
        self._portal = portal
        self._handle = handle

    @property
    def id(self) -> str:
        """The id of the record."""
        return self._handle.record.id

    @property
    def filter(self) -> Json:
        """The filter, as the application wrote it."""
        return self._handle.record.filter

    @property
    def view(self) -> SpaceView:
        """The space as publishers use it now: its schema, index version and trees."""
        return self._handle.view

    def update(self, filter: Json) -> None:
        """Replace the filter in one step; events that match both are delivered throughout."""
        self._portal.run(self._client.update(self._handle, filter))

    def close(self) -> None:
        """Unsubscribe or unadvertise, if the control plane's client has not done so."""
        with suppress(Closed):
            self._portal.clean_up(self._client.end(self._handle))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Subscription(_Record[SubscriptionHandle]):
    """Matching events in the order of their arrival: an iterator and a context manager."""

    def __init__(
        self, client: Client, portal: Portal, handle: SubscriptionHandle, inbox: ThreadInbox
    ) -> None:
        super().__init__(client, portal, handle)
        self._inbox = inbox

    @property
    def dropped(self) -> int:
        """How many events were dropped because the queue was full."""
        return self._inbox.dropped

    def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError after `timeout` seconds, Closed if none will come."""
        self._portal.check_process()
        return self._inbox.get(timeout)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        self._portal.check_process()
        try:
            return self._inbox.get()
        except Closed:
            raise StopIteration from None


class Advertisement(_Record[AdvertisementHandle]):
    """Publishes events that match its filter: a context manager."""

    def publish(self, event: Mapping[str, object]) -> int:
        """Send an event to all subscribers; returns its id. It must match the filter."""
        return self._handle.publish(event)

    def publish_many(self, events: Iterable[Mapping[str, object]]) -> int:
        """Send events one after the other; returns their number."""
        return sum(1 for _ in map(self.publish, events))
