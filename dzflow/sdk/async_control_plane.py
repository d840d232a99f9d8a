"""The control plane as applications with an event loop use it: the same, awaited."""

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from dzflow.sdk.async_rest import AsyncRest
from dzflow.sdk.core import QUEUE, TTL, Advertised, Core, Handle
from dzflow.sdk.errors import Closed
from dzflow.sdk.inbox import Event, TaskInbox
from dzflow.sdk.sorter import Counters
from dzflow.sdk.talk import Json

_TURN = 100  # events that are published before other tasks get their turn


class AsyncControlPlane(AsyncRest):
    """An application's way to the control plane, and to events if it names its host.

    As `ControlPlane`, for the tasks of one event loop.
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

    async def close(self) -> None:
        """End all subscriptions and advertisements, and close all connections."""
        try:
            await self._run(self._core.close())
        finally:
            await super().close()

    def subscribe(
        self,
        space: str,
        filter: Json,
        *,
        label: str | None = None,
        ttl: float | None = TTL,
        queue: int = QUEUE,
    ) -> "Opening[AsyncSubscription]":
        """Get the events that match; done when the switches have acknowledged.

        To be awaited, or used in `async with`. A `ttl` is renewed while this process lives. At most
        `queue` events wait to be taken; then the oldest ones are dropped.
        """

        async def opened() -> AsyncSubscription:
            inbox = TaskInbox(queue)
            steps = self._core.subscribe(space, filter, label, ttl, inbox)
            return AsyncSubscription(self, await self._run(steps), inbox)

        return Opening(opened())

    def advertise(
        self, space: str, filter: Json, *, label: str | None = None, ttl: float | None = TTL
    ) -> "Opening[AsyncAdvertisement]":
        """Say what will be published; done when the switches have acknowledged.

        To be awaited, or used in `async with`.
        """

        async def opened() -> AsyncAdvertisement:
            steps = self._core.advertise(space, filter, label, ttl)
            return AsyncAdvertisement(self, await self._run(steps))

        return Opening(opened())

    async def advertised(self, space: str) -> Advertised:
        """What the host has advertised in a space, to publish under it without an own one."""
        return await self._run(self._core.advertised(space))

    def counters(self) -> dict[str, Counters]:
        """What became of the events of each space that reached this process."""
        return self._core.counters()


class _Opened:
    """A subscription or advertisement: a context manager."""

    def __init__(self, control_plane: AsyncControlPlane, handle: Handle) -> None:
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

    async def update(self, filter: Json) -> None:
        """Replace the filter in one step; what both want or hold is never interrupted."""
        await self._control_plane._run(self._control_plane._core.update(self._handle, filter))

    async def close(self) -> None:
        """Unsubscribe or unadvertise."""
        await self._control_plane._run(self._control_plane._core.close_one(self._handle))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncSubscription(_Opened):
    """Events that match a filter, in the order they came: an iterator and a context manager."""

    def __init__(self, control_plane: AsyncControlPlane, handle: Handle, inbox: TaskInbox) -> None:
        super().__init__(control_plane, handle)
        self._inbox = inbox

    @property
    def dropped(self) -> int:
        """How many events were dropped because nobody took them in time."""
        return self._inbox.dropped

    async def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError if none comes in time, Closed if none will come."""
        return await self._inbox.get(timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self._inbox.get()
        except Closed:
            raise StopAsyncIteration from None


class AsyncAdvertisement(_Opened):
    """What an application publishes: a context manager."""

    async def publish(self, event: Mapping[str, object]) -> int:
        """Send an event to all who want it; gives its id. It must match the filter."""
        return self._control_plane._core.publish(self._handle, event)

    async def publish_many(self, events: Iterable[Mapping[str, object]]) -> int:
        """Send events one after the other; gives their number."""
        count = 0
        for count, event in enumerate(events, 1):
            self._control_plane._core.publish(self._handle, event)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return count


Opened = TypeVar("Opened", bound=_Opened)


class Opening(Generic[Opened]):
    """Something that is being opened: await it, or use it in `async with`."""

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
