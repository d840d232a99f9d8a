"""One thread per process in which everything runs that an application does not wait for."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """An event loop in a thread of its own; it ends when nobody uses it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop

    def enter(self) -> None:
        """Begin to use it."""
        with self._lock:
            self._users += 1
            if self._thread is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, name="dzflow", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Stop to use it; tasks that were started should have ended."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._thread is not None:
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join()
                self._thread = None

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


BACKGROUND = Background()
# Threads do not come along into a child process; what is made there starts one of its own.
os.register_at_fork(after_in_child=BACKGROUND.__init__)  # type: ignore[misc]
