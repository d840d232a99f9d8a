"""The tasks of one operation for its partitions, phase by phase, and their answers. Pure.

Events go in (a task done, an owner changed), and each returns what is to be done next. A rollout
leads from what partitions have of a record (`before`) to what they shall have (`after`):

| phase | tasks ask partitions to have |
| --- | --- |
| grow | old and new regions together, wherever there are new ones |
| shrink | the new regions, or nothing, wherever a partition has something else |
| back | after a refusal: the old regions, or nothing, everywhere |
| gone | nothing, wherever a task asked for something, because the record no longer exists |

To begin is to grow from nothing, to end is to shrink to nothing. What a partition has done counts
as long as the epoch under which it was done is that of its owner.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from configurators.store.model import Record
from configurators.streams.messages import Done, Task
from configurators.streams.task_numbers import Phase, task_number
from dispatcher.requests.shares import NOTHING, Share, Shares, union


class Next(Enum):
    """What is to be done after an event."""

    WAIT = "wait"
    SEND = "send"  # send the tasks that `to_send` returns
    SETTLE = "settle"  # everything is done: write the result
    PAUSE = "pause"  # refused, and there is no way back: `retry` after a while
    CHECK = "check"  # another operation seems to be in progress: read the record


class Rollout:
    """The progress of one operation in all partitions of its record.

    `sure` says that partitions have exactly what `before` says: the record was active, and no
    other operation was in progress. Otherwise all partitions get a task, and a refused removal
    cannot be undone. A rollout that has a `refusal` from the start only restores what was before.
    """

    __slots__ = (
        "_done_under",
        "_owner_epochs",
        "_phase",
        "_record",
        "_sure",
        "after",
        "before",
        "decided_us",
        "flow_ops",
        "latest",
        "open",
        "pushed_us",
        "refusal",
        "trace",
        "waiting",
    )

    def __init__(
        self,
        record: Record,
        before: Shares,
        after: Shares,
        sure: bool = True,
        refusal: str | None = None,
    ) -> None:
        self._record = record
        self._sure = sure
        self._phase = Phase.GROW
        self._done_under: dict[str, int] = {}  # the epochs under which partitions did their task
        self._owner_epochs: dict[str, int] = {}  # of owners that took over meanwhile
        self.before = before
        self.after = after
        self.latest: dict[str, Task] = {}  # the last task of each partition
        self.open: dict[str, None] = {}  # partitions that have not done it yet
        self.refusal = refusal  # why the operation was refused
        self.waiting: str | None = None  # why it takes so long
        self.trace = b""  # the context that its tasks carry
        self.flow_ops = 0
        self.decided_us = self.pushed_us = 0

    @property
    def partitions(self) -> Iterable[str]:
        """All partitions that have, or shall have, something of the record."""
        return {**self.before, **self.after}

    @property
    def withdrawn(self) -> bool:
        """Whether the record no longer exists, so that there is no result to write."""
        return self._phase is Phase.GONE

    # Events

    def start(self) -> Next:
        """The operation is written."""
        if self.refusal:
            return self._refused(self.refusal)
        wanted: dict[str, Share] = {}
        for name, share in self.after.items():
            had = self.before.get(name, NOTHING)
            both = union(had, share)
            if both != had or not self._sure:
                wanted[name] = both
        return self._assign(wanted) or self._shrink()

    def done(self, done: Done) -> Next:
        """A partition has answered. Late answers, and those to other tasks, change nothing."""
        if not self.awaits(done):
            return Next.WAIT
        name = done.partition
        if done.outcome == "done" or (self.withdrawn and done.outcome == "superseded"):
            del self.open[name]
            self._done_under[name] = done.epoch
            self.flow_ops += done.adds + done.modifies + done.deletes
            self.waiting = None
            if self.open:
                return Next.WAIT
            # The partition that answers last was the slowest, so its times count.
            self.decided_us += done.decided_us
            self.pushed_us += done.pushed_us
            return self._shrink() if self._phase is Phase.GROW else Next.SETTLE
        if done.outcome == "failed":
            return self._refused(done.reason or "a switch refused it")
        if done.outcome == "superseded":
            return Next.CHECK
        return Next.WAIT  # moved: the task is sent again when the new owner is known

    def awaits(self, done: Done) -> bool:
        """Whether it answers the last task of its partition, and comes from the present owner."""
        task = self.latest.get(done.partition)
        if task is None or task.seq != done.seq or done.partition not in self.open:
            return False
        return not self.by_former_owner(done)

    def by_former_owner(self, done: Done) -> bool:
        """Whether it comes from a former owner of the partition, so that the new one must act."""
        return done.outcome != "superseded" and done.epoch < self._owner_epochs.get(
            done.partition, 0
        )

    def owner_changed(self, name: str, epoch: int) -> Next:
        """A partition has a new owner, which may not have what the old one did."""
        if name not in self.latest or self._done_under.get(name) == epoch:
            return Next.WAIT
        self._owner_epochs[name] = epoch
        self.open[name] = None
        self._done_under.pop(name, None)
        return Next.SEND

    def partition_gone(self, name: str) -> Next:
        """A partition no longer exists."""
        self.latest.pop(name, None)
        self._done_under.pop(name, None)
        self.before = {other: share for other, share in self.before.items() if other != name}
        self.after = {other: share for other, share in self.after.items() if other != name}
        if name not in self.open:
            return Next.WAIT
        del self.open[name]
        if self.open:
            return Next.WAIT
        return self._shrink() if self._phase is Phase.GROW else Next.SETTLE

    def withdraw(self) -> Next:
        """Another operation has removed the record: remove what late tasks have installed.

        A partition that was rebuilt since then does not know that its task was late.
        """
        if self.withdrawn:
            return Next.WAIT
        self._phase = Phase.GONE
        self.open.clear()
        installed = [name for name, task in self.latest.items() if task.regions or task.edge]
        return self._assign(dict.fromkeys(installed, NOTHING)) or Next.SETTLE

    def retry(self) -> Next:
        """The pause after a refusal is over."""
        return Next.SEND if self.open else Next.SETTLE

    # What to do next

    def to_send(self) -> Iterable[tuple[str, Task]]:
        """The tasks that partitions have not done yet."""
        latest = self.latest
        return [(name, latest[name]) for name in self.open]

    def outdated(self, epoch: Callable[[str], int | None]) -> list[str]:
        """Partitions whose present owner is newer than the one that did the task."""
        return [name for name, under in self._done_under.items() if under < (epoch(name) or 0)]

    # Phases

    def _shrink(self) -> Next:
        self._phase = Phase.SHRINK
        wanted: dict[str, Share] = {}
        for name in self.partitions:
            target = self.after.get(name, NOTHING)
            task = self.latest.get(name)
            has = (task.regions, task.edge) if task else self.before.get(name, NOTHING)
            if has != target or not (self._sure or task):
                wanted[name] = target
        return self._assign(wanted) or Next.SETTLE

    def _refused(self, reason: str) -> Next:
        no_way_back = self._record.state == "removing" and not self._sure
        if self._phase >= Phase.BACK or no_way_back:
            self.waiting = reason
            return Next.PAUSE
        self.refusal = reason
        self._phase = Phase.BACK
        self.open.clear()
        # A partition without a task of this operation still has what it had before.
        wanted = {
            name: self.before.get(name, NOTHING)
            for name in self.partitions
            if name in self.latest or not self._sure
        }
        return self._assign(wanted) or Next.SETTLE

    def _assign(self, shares: Shares) -> Next | None:
        """Give partitions a new task each; None if there are none."""
        record = self._record
        seq = task_number(record.seq, self._phase)
        advertised = record.kind == "advertisement"
        for name, (regions, edge) in shares.items():
            self.latest[name] = Task(
                record.id, seq, record.host, advertised, regions, edge, self.trace
            )
            self.open[name] = None
            self._done_under.pop(name, None)
        return Next.SEND if shares else None
