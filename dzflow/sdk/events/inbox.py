"""The queue between the SDK's event loop and the application that receives events."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from math import inf
from time import monotonic

from dzflow.errors import BadInput
from dzflow.sdk.errors import Closed
from dzflow.sdk.events.event import Event
from dzflow.sdk.interrupts import LOOK_AFTER


class Inbox(ABC):
    """Events in the order of their arrival; a full inbox drops the oldest one.

    The SDK's event loop calls `put` and `close`.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise BadInput(f"a queue holds at least one event, got {size}")
        self._size = size
        self._events: deque[Event] = deque()
        self._closed = False
        self.dropped = 0  # events, because the inbox was full

    def put(self, event: Event) -> bool:
        """Add an event; False if that dropped another one. A closed inbox ignores it."""
        if self._closed:
            return True
        full = len(self._events) >= self._size
        if full:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._notify()
        return not full

    def close(self) -> None:
        """Accept no more events; receivers get the remaining ones, then Closed."""
        self._closed = True
        self._notify()

    @abstractmethod
    def _notify(self) -> None:
        """Wake receivers."""

    def _next(self) -> Event | None:
        """Remove the oldest event; None if there is none yet, Closed if none will come."""
        if self._events:
            return self._events.popleft()
        if self._closed:
            raise Closed("the subscription is closed; subscribe again to get more events")
        return None


class ThreadInbox(Inbox):
    """An inbox for receivers in any thread."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._ready = threading.Condition()

    def put(self, event: Event) -> bool:
        """Add an event; False if that dropped another one. A closed inbox ignores it."""
        with self._ready:
            return super().put(event)

    def close(self) -> None:
        """Accept no more events; receivers get the remaining ones, then Closed."""
        with self._ready:
            super().close()

    def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError after `timeout` seconds, Closed if none will come."""
        end = inf if timeout is None else monotonic() + timeout
        with self._ready:
            while not (self._events or self._closed):
                left = end - monotonic()
                if left <= 0:
                    raise TimeoutError(f"no event within {timeout} s")
                self._ready.wait(min(left, LOOK_AFTER))
            event = self._next()
        assert event is not None
        return event

    def _notify(self) -> None:
        self._ready.notify_all() if self._closed else self._ready.notify()


class TaskInbox(Inbox):
    """An inbox for receivers that are tasks of the same event loop."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._arrived = asyncio.Event()

    async def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError after `timeout` seconds, Closed if none will come."""
        try:
            async with asyncio.timeout(timeout):
                while (event := self._next()) is None:
                    self._arrived.clear()
                    await self._arrived.wait()
                return event
        except TimeoutError:
            raise TimeoutError(f"no event within {timeout} s") from None

    def _notify(self) -> None:
        self._arrived.set()
