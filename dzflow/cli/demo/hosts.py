"""The hosts of `dzflow demo`."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dzflow.cli.demo.quotes import SPACE, Quote
from dzflow.errors import DzflowError

if TYPE_CHECKING:
    from dzflow.sdk import AsyncAdvertisement, AsyncControlPlane, AsyncSubscription

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Got(NamedTuple):
    """A quote that a subscription received, and when."""

    number: int
    at: float


class Participant:
    """A host: subscribes and publishes in its own thread (in a lab, inside its namespace)."""

    def __init__(self, host: str, url: str, token: str | None, namespace: str | None) -> None:
        self.host = host
        self.filters: list[str] = []
        self.got: list[list[Got]] = []  # of each subscription
        self.sent: dict[int, float] = {}
        self.recording = True  # whether `got` and `sent` are kept
        self._url, self._token = url, token
        self._loop = asyncio.new_event_loop()
        self._control_plane: AsyncControlPlane | None = None
        self._subscriptions: deque[tuple[AsyncSubscription, asyncio.Task[None]]] = deque()
        self._advertisements: list[AsyncAdvertisement] = []
        self._thread = threading.Thread(target=self._run, args=(namespace,), name=host, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the host's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def open(self, wanted: Sequence[str], advertised: Sequence[str]) -> None:
        """Subscribe and advertise; the switches have acknowledged on return."""
        from dzflow.sdk import AsyncControlPlane

        self._control_plane = AsyncControlPlane(self._url, self.host, self._token)
        for filter in wanted:
            self.filters.append(filter)
            self.got.append([])
            await self._subscribe(filter, self.got[-1])
        for filter in advertised:
            made = await self._control_plane.advertise(SPACE, filter)
            self._advertisements.append(made)

    async def publish(self, quotes: Iterable[Quote], rate: float) -> None:
        """Send quotes at a steady rate."""
        start = time.perf_counter()
        for place, quote in enumerate(quotes):
            late = start + place / rate - time.perf_counter()
            if late > 0:
                await asyncio.sleep(late)
            if self.recording:
                self.sent[quote["number"]] = time.perf_counter()
            await self._advertisements[0].publish(quote)

    async def change_filters(self, filters: Iterator[str], every: float) -> None:
        """Every so many seconds, subscribe to another filter, and end the oldest subscription."""
        for filter in filters:
            await asyncio.sleep(every)
            try:
                await self._subscribe(filter, [])
                subscription, reader = self._subscriptions.popleft()
                await subscription.close()
                await reader
            except DzflowError as error:
                _log.warning("host %s could not change its filters: %s", self.host, error)

    def unwanted(self) -> int:
        """How many events the network delivered that match no filter of the host."""
        assert self._control_plane is not None
        counters = self._control_plane.counters().get(SPACE)
        return counters.unwanted if counters else 0

    def close(self) -> None:
        """End the host's subscriptions and advertisements, and its thread."""
        try:
            self.begin(self._close()).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _subscribe(self, filter: str, got: list[Got]) -> None:
        assert self._control_plane is not None
        events = await self._control_plane.subscribe(SPACE, filter, queue=1_000_000)
        self._subscriptions.append((events, asyncio.create_task(self._read(events, got))))

    async def _read(self, events: "AsyncSubscription", got: list[Got]) -> None:
        async for event in events:
            if self.recording:
                got.append(Got(event["number"], time.perf_counter()))  # noqa: PERF401 - each at its moment

    async def _close(self) -> None:
        if self._control_plane is not None:
            await self._control_plane.close()
        await asyncio.gather(*(reader for _, reader in self._subscriptions))

    def _run(self, namespace: str | None) -> None:
        with _inside(namespace):
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()


@contextmanager
def _inside(namespace: str | None) -> Iterator[None]:
    if namespace is None:
        yield
    else:
        from sdn.lab.namespaces import inside

        with inside(namespace):
            yield
