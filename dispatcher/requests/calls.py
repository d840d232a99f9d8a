"""A call on its way: the answers to its elements, and one future for all of them."""

import asyncio
from typing import Any

from dispatcher.errors import Problem, problem_of
from dispatcher.views import Answer
from dzflow.errors import DzflowError


class Call:
    """Some operations that one caller asked for together.

    An element is written once it is durable (or refused), and finished once it has its answer.
    """

    def __init__(self, size: int) -> None:
        self.answers: list[Answer | None] = [None] * size
        self.begun: list[Any] = [None] * size  # the operations that were written
        self._unwritten = size
        self._unfinished = size
        self._patient = True
        self._future: asyncio.Future[None] | None = None
        self.cancelled = False
        self.over = False  # nobody waits for it any more

    def written(self, place: int, operation: Any) -> None:
        """An element is durable."""
        if self.begun[place] is None and self.answers[place] is None:
            self._unwritten -= 1
        self.begun[place] = operation
        self._wake()

    def answer(self, place: int, answer: Answer) -> None:
        """An element has come to its end; the first answer counts."""
        if self.answers[place] is not None:
            return
        if self.begun[place] is None:
            self._unwritten -= 1
        self._unfinished -= 1
        self.answers[place] = answer
        self._wake()

    def refuse(self, place: int, error: DzflowError | Problem) -> None:
        """An element is refused."""
        problem = error if isinstance(error, Problem) else problem_of(error)
        self.answer(place, Answer(problem.status, problem=problem))

    def give_up(self, error: DzflowError) -> None:
        """Nobody will work on it any more: refuse what is not written, wait for nothing else."""
        self._patient = False
        for place, begun in enumerate(self.begun):
            if begun is None and self.answers[place] is None:
                self.refuse(place, error)
        self._wake()

    async def wait(self, seconds: float) -> None:
        """Until everything is finished; or, after these seconds, until everything is written."""
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
