"""The control plane as applications with an event loop use it: subscribe, advertise, publish."""

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from dzflow.sdk.client import QUEUE, TTL, Client
from dzflow.sdk.errors import Closed
from dzflow.sdk.events.event import Event
from dzflow.sdk.events.inbox import TaskInbox
from dzflow.sdk.events.sorter import Counters
from dzflow.sdk.handles import Advertised, AdvertisementHandle, Handle, SubscriptionHandle
from dzflow.sdk.rest.api_protocol import ApiProtocol, Json
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.space_view import SpaceView

_TURN = 100  # events that `publish_many` sends before other tasks run


class AsyncControlPlane:
    """An application's access to the control plane, and to events if it names its host.

    For the tasks of one event loop; a context manager. One per host is enough: all its
    subscriptions share a socket. `interface` is needed only on a machine with several network
    interfaces. `endpoint` is the address of an emulated host; without it, the control plane is
    asked for it.
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

    @property
    def rest(self) -> ApiProtocol:
        """The REST interface, over the same connections."""
        return self._rest

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all subscriptions and advertisements, and close all connections."""
        try:
            await self._client.close()
        finally:
            await self._rest.close()

    def subscribe(
        self,
        space: str,
        filter: Json,
        *,
        label: str | None = None,
        ttl: float | None = TTL,
        queue: int = QUEUE,
    ) -> "Opening[AsyncSubscription]":
        """Subscribe to the events that match; done when all switches have acknowledged.

        Await the result, or use it in `async with`. The SDK renews the record while this process
        lives; `ttl` seconds after a crash it expires. At most `queue` events wait for the
        application; then the oldest ones are dropped.
        """

        async def opened() -> AsyncSubscription:
            inbox = TaskInbox(queue)
            handle = await self._client.subscribe(space, filter, inbox, label, ttl)
            return AsyncSubscription(self._client, handle, inbox)

        return Opening(opened())

    def advertise(
        self, space: str, filter: Json, *, label: str | None = None, ttl: float | None = TTL
    ) -> "Opening[AsyncAdvertisement]":
        """Announce which events will be published; done when all switches have acknowledged.

        Await the result, or use it in `async with`.
        """

        async def opened() -> AsyncAdvertisement:
            handle = await self._client.advertise(space, filter, label, ttl)
            return AsyncAdvertisement(self._client, handle)

        return Opening(opened())

    async def advertised(self, space: str) -> Advertised:
        """All that the host has advertised in a space, to publish without another advertisement."""
        return await self._client.advertised(space)

    def counters(self) -> dict[str, Counters]:
        """By space: how many events this process has published and received, and their fate."""
        return self._client.counters()

    def undecodable(self) -> int:
        """How many datagrams reached this process that are not events."""
        return self._client.undecodable()

    async def spaces(self) -> list[dict[str, Any]]:
        """All spaces."""
        return await self._rest.spaces()

    async def space(self, name: str) -> dict[str, Any]:
        """One space."""
        return await self._rest.space(name)

    async def put_space(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Create a space or change its schema; other API processes hear of it a moment later."""
        return await self._rest.put_space(name, schema)

    async def delete_space(self, name: str) -> None:
        """Delete a space that has no subscriptions and advertisements."""
        await self._rest.delete_space(name)

    async def explain(
        self,
        space: str,
        filter: Json | None = None,
        host: str | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The regions of a filter, its share of unwanted events, and the flows it would need.

        With an event, also how it would travel if the host published it.
        """
        return await self._rest.explain(space, filter, host, event)


H = TypeVar("H", bound=Handle)


class _AsyncRecord(Generic[H]):
    """An open subscription or advertisement: a context manager."""

    def __init__(self, client: Client, handle: H) -> None:
        self._client = client
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

    async def update(self, filter: Json) -> None:
        """Replace the filter in one step; events that match both are delivered throughout."""
        await self._client.update(self._handle, filter)

    async def close(self) -> None:
        """Unsubscribe or unadvertise."""
        await self._client.end(self._handle)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncSubscription(_AsyncRecord[SubscriptionHandle]):
    """Matching events in the order of their arrival: an iterator and a context manager."""

    def __init__(self, client: Client, handle: SubscriptionHandle, inbox: TaskInbox) -> None:
        super().__init__(client, handle)
        self._inbox = inbox

    @property
    def dropped(self) -> int:
        """How many events were dropped because the queue was full."""
        return self._inbox.dropped

    async def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError after `timeout` seconds, Closed if none will come."""
        return await self._inbox.get(timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self._inbox.get()
        except Closed:
            raise StopAsyncIteration from None


class AsyncAdvertisement(_AsyncRecord[AdvertisementHandle]):
    """Publishes events that match its filter: a context manager."""

    async def publish(self, event: Mapping[str, object]) -> int:
        """Send an event to all subscribers; returns its id. It must match the filter."""
        return self._handle.publish(event)

    async def publish_many(self, events: Iterable[Mapping[str, object]]) -> int:
        """Send events one after the other; returns their number."""
        count = 0
        for count, event in enumerate(events, 1):
            self._handle.publish(event)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return count


Opened = TypeVar("Opened", bound=_AsyncRecord[Any])


class Opening(Generic[Opened]):
    """A subscription or advertisement that is being opened: await it, or use it in `async with`."""

    def __init__(self, work: Coroutine[Any, Any, Opened]) -> None:
        self._work = work
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._work.__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._work
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()
