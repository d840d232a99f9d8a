"""Where events wait for the application: filled by one thread, emptied by another or by a task."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import Any

from dzflow.errors import BadInput
from dzflow.sdk.errors import Closed

Event = dict[str, Any]


class Inbox(ABC):
    """Events in the order they came; when it is full the oldest one makes room."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise BadInput(f"a queue has room for one event at least, got {size}")
        self._size = size
        self._events: deque[Event] = deque()
        self._lock = threading.Lock()
        self.closed = False
        self.dropped = 0  # for want of room

    def put(self, event: Event) -> bool:
        """Add an event; False if another one was dropped for it."""
        with self._lock:
            if self.closed:
                return True
            full = len(self._events) >= self._size
            if full:
                self._events.popleft()
                self.dropped += 1
            self._events.append(event)
            self._notify()
        return not full

    def close(self) -> None:
        """Let nothing more in; what is there can still be taken, then comes the end."""
        with self._lock:
            self.closed = True
            self._notify()

    @abstractmethod
    def _notify(self) -> None:
        """Wake who waits; called with the lock held."""

    def _take(self) -> Event | None:
        """The next event, if there is one; called with the lock held."""
        if self._events:
            return self._events.popleft()
        if self.closed:
            raise Closed("the subscription is closed; subscribe again to get more events")
        return None


class ThreadInbox(Inbox):
    """An inbox that threads wait at."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._ready = threading.Condition(self._lock)

    def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError if none comes in time, Closed if none will come."""
        with self._ready:
            if not self._ready.wait_for(lambda: self._events or self.closed, timeout):
                raise TimeoutError(f"no event within {timeout} s")
            event = self._take()
        assert event is not None
        return event

    def _notify(self) -> None:
        self._ready.notify_all() if self.closed else self._ready.notify()


class TaskInbox(Inbox):
    """An inbox that tasks of the loop wait at in which it was made."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._loop = asyncio.get_running_loop()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._told = False  # whether the loop was asked to wake somebody, and has not yet

    async def get(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError if none comes in time, Closed if none will come."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    with self._lock:
                        event = self._take()
                        if event is not None:
                            return event
                        waiter = self._loop.create_future()
                        self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            raise TimeoutError(f"no event within {timeout} s") from None

    def _notify(self) -> None:
        if self._waiters and not self._told:
            self._told = True
            # A loop that is closed has nobody who waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._lock:
            self._told = False
            waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
