"""An event loop without I/O: time jumps to the next timer. Processes on it can be stopped.

Every callback belongs to the process in whose context it was scheduled. Callbacks of a paused
process wait until it continues; those of a killed process never run.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

_START = 1000.0
_TRIES = 20
_THREAD = 0.001, 0.02  # seconds that a thread takes
_STEPS = 400_000  # callbacks of one run, after which it counts as caught in a loop


class Stuck(Exception):
    """Nothing is scheduled any more, or callbacks follow each other without end."""


class Node:
    """A process: a name, and whether its callbacks run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = contextvars.copy_context()
        self.context.run(_node.set, self)
        self.stopped = False  # paused or dead
        self.dead = False
        self.woke = 0.0  # when it last continued after a pause
        self.hears_late = 0.0  # seconds by which changes in etcd reach it late
        self.kept: list[asyncio.Handle] = []


_node: contextvars.ContextVar[Node | None] = contextvars.ContextVar("node", default=None)
NOWHERE = contextvars.Context()
"""The context of the network and of etcd, which belong to no process."""


def this_node() -> Node:
    """The process that runs now."""
    node = _node.get()
    assert node is not None
    return node


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order in which they become ready; no time passes while they run."""

    _ready: Any

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.now = _START
        self.steps = 0
        self._ending = False
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self.made: list[asyncio.Task[Any]] = []  # so that none is collected before the end
        self.set_task_factory(self._make)

    def time(self) -> float:
        """Seconds on the virtual clock."""
        return self.now

    def at(
        self, when: float, context: contextvars.Context, call: Callable[..., object], *args: Any
    ) -> None:
        """Schedule a call in the context of a process, or `NOWHERE`."""
        timer = asyncio.TimerHandle(when, call, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As in other loops, but without checks for mistakes."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As in other loops, but without checks for mistakes."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def run_in_executor(  # type: ignore[override]
        self, _: object, work: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do what a thread would do; a real one would end at any time of the virtual clock."""
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(work(*args))
            except Exception as error:
                done.set_exception(error)

        self.call_later(self.random.uniform(*_THREAD), run)
        return done

    def resume(self, node: Node) -> None:
        """Let a paused process continue; the callbacks that it missed come first."""
        node.stopped = False
        node.woke = self.now
        self._ready.extend(node.kept)
        node.kept.clear()

    def _make(
        self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self.made.append(task)
        return task

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Stuck("nothing is scheduled any more")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            ready.append(heapq.heappop(timers)[2])
        self.steps += len(ready)
        if self.steps > _STEPS:
            raise Stuck(f"more than {_STEPS} callbacks were run")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            node = handle._context.get(_node)
            if node is not None and node.stopped and not self._ending:
                node.kept.append(handle)
            else:
                handle._run()

    def _write_to_self(self) -> None:
        """There are no other threads that could wake this loop."""

    def _process_events(self, event_list: Any) -> None:
        """There is no I/O."""

    def finish(self) -> None:
        """Cancel all tasks that are left, and close the loop; this is not part of the run."""
        self._ending = True
        self.steps = 0
        self.set_exception_handler(lambda *_: None)
        for _ in range(_TRIES):
            left = [task for task in self.made if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=1.0))
        for task in self.made:
            if task.done() and not task.cancelled():
                task.exception()  # the error is of no interest after the run
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()
