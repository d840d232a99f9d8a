"""The event loop that works for applications without one: one thread per process.

`Portal` lets ordinary threads call coroutines there.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from dzflow.aio import log_failure
from dzflow.sdk.errors import CLIENT_CLOSED, FORKED, Closed, WrongThread
from dzflow.sdk.interrupts import LOOK_AFTER

T = TypeVar("T")

_CLEAN_UP = 5.0  # seconds that an interrupted call or a task left behind may take to clean up
_WOULD_HANG = (
    "this call would wait for ever, because it runs in the SDK's own thread, which carries it out; "
    "call from another thread, not in __del__ or a logging handler"
)


class BackgroundLoop:
    """An event loop in a thread; the thread ends when the last user leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._unattended: set[asyncio.Task[None]] = set()  # nobody waits for them

    def enter(self) -> None:
        """Begin to use the loop; starts the thread if there is none."""
        with self._lock:
            if self._thread is None:
                self._loop, self._thread = _start_loop()
            self._users += 1

    def leave(self) -> None:
        """Stop using the loop; tasks that the last user leaves behind are cancelled."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._thread is None:
                return
            # First of all: if Ctrl-C interrupts the rest, the next user starts another thread.
            thread, self._thread = self._thread, None
            self._loop.call_soon_threadsafe(self._loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def in_own_thread(self) -> bool:
        """Whether the caller runs in the loop's thread, where it must not wait for the loop."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for its result.

        An interrupt of the waiting thread (Ctrl-C) cancels the coroutine, and is raised after its
        clean-up. WrongThread in the loop's own thread.
        """
        if self.in_own_thread():
            work.close()
            raise WrongThread(_WOULD_HANG)
        loop = self._loop
        ended: Future[asyncio.Task[T]] = Future()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            task = loop.create_task(work)
            started.append(task)
            task.add_done_callback(ended.set_result)

        def cancel() -> None:
            for task in started:
                task.cancel()

        loop.call_soon_threadsafe(start)
        try:
            while not wait([ended], LOOK_AFTER).done:
                pass
            task = ended.result()
        except BaseException:
            loop.call_soon_threadsafe(cancel)
            wait([ended], _CLEAN_UP)
            raise
        return task.result()

    def run_and_leave(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a user's last coroutine, and leave; in the loop's own thread, without waiting."""
        if self.in_own_thread():
            task = self._loop.create_task(work, name="clean-up")
            self._unattended.add(task)
            task.add_done_callback(self._unattended_ended)
            return
        try:
            self.run(work)
        finally:
            self.leave()

    def _unattended_ended(self, task: asyncio.Task[None]) -> None:
        self._unattended.discard(task)
        log_failure(task)
        self.leave()


def _start_loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop,), name="dzflow", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the process can have no more threads
        loop.close()
        raise
    except BaseException:  # interrupted, while the thread starts
        loop.call_soon_threadsafe(loop.stop)
        raise
    return loop, thread


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_tasks() -> None:
    """Cancel all other tasks, so that nobody waits for them for ever."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CLEAN_UP)


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
        """Run a coroutine in the background loop, and wait for its result; Closed after `close`.

        WrongThread in the loop's own thread.
        """
        self._enter_for(work)
        try:
            return _LOOP.run(work)
        finally:
            _LOOP.leave()

    def clean_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as `run` does; in the loop's own thread, without waiting for it."""
        self._enter_for(work)
        _LOOP.run_and_leave(work)

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the client's own clean-up and leave the loop; later calls do nothing.

        In the loop's own thread, this does not wait until the clean-up is done.
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
        _LOOP.run_and_leave(work)

    def _enter_for(self, work: Coroutine[Any, Any, Any]) -> None:
        """Enter the loop for one call; if that fails, the coroutine is never run."""
        try:
            self._enter()
        except BaseException:
            work.close()
            raise

    def _enter(self) -> None:
        """Enter the loop for one call; the first one enters for the client, too."""
        self.check_process()
        with self._lock:
            if self._closed:
                raise Closed(CLIENT_CLOSED)
            if not self._entered:
                _LOOP.enter()
                self._entered = True
            _LOOP.enter()
