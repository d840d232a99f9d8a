"""The event loop that works for applications without one: one thread per process.

`Portal` lets ordinary threads call coroutines there.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from dzflow.sdk.errors import CLIENT_CLOSED, FORKED, Closed

T = TypeVar("T")

_CLEAN_UP = 5.0  # seconds that an interrupted call may take to clean up


class BackgroundLoop:
    """An event loop in a thread; the thread ends when the last user leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop

    def enter(self) -> None:
        """Begin to use the loop; starts the thread if there is none."""
        with self._lock:
            self._users += 1
            if self._thread is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, name="dzflow", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Stop using the loop; all tasks of the caller have ended."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._thread = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for its result.

        An interrupt of the waiting thread (Ctrl-C) cancels the coroutine, and is raised after its
        clean-up.
        """
        ended: Future[asyncio.Task[T]] = Future()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(work)
            started.append(task)
            task.add_done_callback(ended.set_result)

        def cancel() -> None:
            for task in started:
                task.cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            task = ended.result()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            wait([ended], _CLEAN_UP)
            raise
        return task.result()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


_LOOP = BackgroundLoop()
# A child process has no copy of its parent's threads; a client that is made there starts another.
os.register_at_fork(after_in_child=_LOOP.__init__)  # type: ignore[misc]


class Portal:
    """One client's way into the background loop, for any number of threads.

    The first call starts the loop, which then lives at least until `close`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._entered = False
        self._closed = False

    def check_process(self) -> None:
        """Raise Closed in a child process of the one that made the client."""
        if self._process != os.getpid():
            raise Closed(FORKED)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the background loop, and wait for its result; Closed after `close`."""
        try:
            self._enter()
        except Closed:
            work.close()
            raise
        try:
            return _LOOP.run(work)
        finally:
            _LOOP.leave()

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the client's own clean-up and leave the loop; later calls do nothing.

        In a child process of the one that made the client, nothing is done: the parent's records
        and connections are not the child's to close.
        """
        used = False
        if self._process == os.getpid():
            with self._lock:
                used = self._entered and not self._closed
                self._closed = True
        if not used:
            work.close()
            return
        try:
            _LOOP.run(work)
        finally:
            _LOOP.leave()

    def _enter(self) -> None:
        """Enter the loop for one call; the first one enters for the client, too."""
        self.check_process()
        with self._lock:
            if self._closed:
                raise Closed(CLIENT_CLOSED)
            if not self._entered:
                self._entered = True
                _LOOP.enter()
            _LOOP.enter()
