"""A call on its way: collects the answers to its elements, and then wakes the caller."""

import asyncio

from configurators.store.model import Record
from dispatcher.calls import Answer
from dispatcher.errors import Problem, problem_of
from dispatcher.requests.operation import Operation
from dzflow.errors import DzflowError


class PendingReply:
    """The reply to operations that one caller asked for together.

    An element is written once it is stored (or refused), and finished once it has its answer.
    """

    def __init__(self, size: int) -> None:
        self.answers: list[Answer | None] = [None] * size
        self.current: list[Operation | Record | None] = [None] * size  # elements that are stored
        self._unwritten = size
        self._unfinished = size
        self._patient = True
        self._future: asyncio.Future[None] | None = None
        self.cancelled = False
        self.over = False  # the caller no longer waits

    def element(self, place: int) -> "Element":
        """One element, to be handed to its operation."""
        return Element(self, place)

    def written(self, place: int, current: Operation | Record) -> None:
        """An element is stored; `current` shows its progress."""
        if self.answers[place] is not None:
            return
        if self.current[place] is None:
            self._unwritten -= 1
        self.current[place] = current
        self._wake()

    def answer(self, place: int, answer: Answer) -> None:
        """An element has its answer; later ones are ignored."""
        if self.answers[place] is not None:
            return
        if self.current[place] is None:
            self._unwritten -= 1
        self._unfinished -= 1
        self.answers[place] = answer
        self.current[place] = None  # it refers to this reply: a cycle would wait for the collector
        self._wake()

    def refuse(self, place: int, error: DzflowError | Problem) -> None:
        """An element is refused."""
        problem = error if isinstance(error, Problem) else problem_of(error)
        self.answer(place, Answer(problem.status, problem=problem))

    def give_up(self, error: DzflowError) -> None:
        """The dispatcher stops: refuse all elements that are not stored, and wait no longer."""
        self._patient = False
        for place, current in enumerate(self.current):
            if current is None and self.answers[place] is None:
                self.refuse(place, error)
        self._wake()

    async def wait(self, seconds: float) -> None:
        """Wait until all elements are finished; or, after these seconds, until all are stored."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            self._patient = False
        timer = loop.call_later(seconds, self._time_is_up) if seconds > 0 else None
        try:
            while not self._satisfied():
                self._future = loop.create_future()
                await self._future
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.over = True
            if timer:
                timer.cancel()

    def _satisfied(self) -> bool:
        return not self._unfinished or not (self._patient or self._unwritten)

    def _time_is_up(self) -> None:
        self._patient = False
        self._wake()

    def _wake(self) -> None:
        if self._future and not self._future.done() and self._satisfied():
            self._future.set_result(None)


class Element:
    """One element of a pending reply; the caller of one operation."""

    __slots__ = ("_place", "_reply")

    def __init__(self, reply: PendingReply, place: int) -> None:
        self._reply = reply
        self._place = place

    @property
    def cancelled(self) -> bool:
        """Whether the caller has gone away."""
        return self._reply.cancelled

    @property
    def over(self) -> bool:
        """Whether the call no longer waits for any element."""
        return self._reply.over

    def written(self, current: Operation | Record) -> None:
        """The element is stored; `current` shows its progress."""
        self._reply.written(self._place, current)

    def answer(self, answer: Answer) -> None:
        """The element has its answer."""
        self._reply.answer(self._place, answer)

    def refuse(self, error: DzflowError | Problem) -> None:
        """The element is refused."""
        self._reply.refuse(self._place, error)
