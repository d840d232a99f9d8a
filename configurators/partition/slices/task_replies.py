"""The replies to the tasks of one partition, and how many tasks have ended."""

from collections.abc import Callable, Collection, Iterable

from configurators.partition.slices.push import Push, shares
from configurators.partition.slices.queue import Item, Slice
from configurators.partition.slices.replies import TaskSource
from configurators.streams.messages import Done, TaskOutcome, Waiting, WorkCounters

Reply = Callable[[TaskSource | None, Done | Waiting], None]
"""Called with the source of a task, and the reply to it."""


class TaskReplies:
    """Replies to the tasks of a partition, under the epoch that the caller gives."""

    def __init__(self, partition: str, reply: Reply, counters: WorkCounters) -> None:
        self.carried_out = 0
        self._partition = partition
        self._reply = reply
        self._counters = counters

    def end(
        self, items: Iterable[Item], epoch: int, outcome: TaskOutcome, reason: str | None = None
    ) -> None:
        """Reply that tasks have ended with this outcome."""
        for item in items:
            done = Done(self._partition, item.task.id, item.task.seq, epoch, outcome, reason)
            self._reply(item.to, done)
            self.carried_out += outcome == "done"
            self._counters.ended += outcome != "moved"

    def end_slice(
        self, part: Slice, epoch: int, push: Push, number: int, decided: float, pushed: float
    ) -> None:
        """Reply that a slice was carried out: its number, its times in seconds, its operations."""
        portions = [shares(total, len(part)) for total in push.tally]
        switches = len({switch for batch in push.decision.rounds for switch in batch})
        for item, adds, modifies, deletes in zip(part.items, *portions, strict=True):
            done = Done(
                self._partition,
                item.task.id,
                item.task.seq,
                epoch,
                "done",
                None,
                round(decided * 1e6),
                round(pushed * 1e6),
                number,
                len(part),
                adds,
                modifies,
                deletes,
                switches,
            )
            self._reply(item.to, done)
        self.carried_out += len(part)
        self._counters.ended += len(part)

    def wait(self, items: Collection[Item], reason: str) -> None:
        """Tell the sources of tasks why these wait."""
        by_source: dict[int, tuple[TaskSource | None, list[tuple[str, int]]]] = {}
        for item in items:
            tasks = by_source.setdefault(id(item.to), (item.to, []))[1]
            tasks.append((item.task.id, item.task.seq))
        for to, tasks in by_source.values():
            self._reply(to, Waiting(self._partition, tasks, reason))
