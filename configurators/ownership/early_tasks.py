"""Tasks that reach a configurator before it knows that it owns their partition."""

from collections.abc import Callable
from typing import NamedTuple

from configurators.streams.messages import Task
from configurators.streams.stream import Stream

_TURNS = 2  # calls of `expire` that tasks survive


class SentTasks(NamedTuple):
    """Tasks that a dispatcher has sent for the owner of a partition under an epoch (None: any)."""

    tasks: list[Task]
    stream: Stream
    epoch: int | None


class EarlyTaskBuffer:
    """Keeps early tasks until their partition is gained, or for about two turns.

    `give_up` is called with the partition and the tasks that have waited too long.
    """

    def __init__(self, give_up: Callable[[str, SentTasks], None]) -> None:
        self._give_up = give_up
        self._waiting: dict[str, list[tuple[SentTasks, int]]] = {}

    def add(self, partition: str, early: SentTasks) -> None:
        """Keep tasks for a partition."""
        self._waiting.setdefault(partition, []).append((early, _TURNS))

    def take(self, partition: str) -> list[SentTasks]:
        """Take out all tasks for a partition, in the order in which they came."""
        return [early for early, _ in self._waiting.pop(partition, ())]

    def expire(self) -> None:
        """End a turn: give up the tasks that have waited long enough."""
        for partition in list(self._waiting):
            left = []
            for early, turns in self._waiting.pop(partition):
                if turns:
                    left.append((early, turns - 1))
                else:
                    self._give_up(partition, early)
            if left:
                self._waiting[partition] = left
