"""The life of one operation on a record: what partitions are told, and when it is over. Pure.

Events go in (a task done, an owner changed), and each returns what is to be done next. An operation
leads from what partitions have of a record (`before`) to what they shall have (`after`) in rounds:

| round | tells |
| --- | --- |
| grow | old and new regions together, wherever there are new ones |
| shrink | the new regions, or nothing, wherever something else was told |
| back | after a refusal: the old regions, or nothing, everywhere |
| gone | nothing, wherever something was told, because the record is gone meanwhile |

To begin is to grow from nothing, to end is to shrink to nothing. What a partition was told counts
as long as the epoch under which it was done is that of its owner.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Literal

from msgspec.structs import replace

from configurators.store.model import Record, Timing
from configurators.streams.messages import Done, Task
from configurators.streams.task_numbers import Phase, task_number

Share = tuple[bytes, bytes]
"""What one partition has of a record: regions and edge regions, packed."""

Shares = Mapping[str, Share]
NOTHING: Share = (b"", b"")

_REGION = 24


class Next(Enum):
    """What is to be done after an event."""

    WAIT = "wait"
    SEND = "send"  # `to_send` has what partitions are to be told
    SETTLE = "settle"  # everything is done: write `settlement`
    PAUSE = "pause"  # refused where nothing else is possible: `again` after a while
    CHECK = "check"  # somebody else seems to be at work: read the record


def union(first: Share, second: Share) -> Share:
    """What has the regions of both."""
    return _both(first[0], second[0]), _both(first[1], second[1])


def _both(first: bytes, second: bytes) -> bytes:
    if first == second or not second:
        return first
    if not first:
        return second
    known = {first[at : at + _REGION] for at in range(0, len(first), _REGION)}
    parts = (second[at : at + _REGION] for at in range(0, len(second), _REGION))
    return first + b"".join(part for part in parts if part not in known)


Action = Literal["begin", "end", "update"]


def action_of(record: Record) -> Action:
    """What the open operation of a record is."""
    if record.state == "pending":
        return "begin"
    return "end" if record.state == "removing" else "update"


class Operation:
    """An operation that is journaled, until it is settled.

    `sure` says that partitions have just what `before` says: the record was active, and nothing
    else was under way. Otherwise everything is told again, and a refused end cannot go back.
    """

    __slots__ = (
        "_phase",
        "action",
        "after",
        "before",
        "call",
        "decided_us",
        "flow_ops",
        "held",
        "indexed",
        "journal_began",
        "journal_ended",
        "known",
        "last_done",
        "latest",
        "open",
        "place",
        "pushed_us",
        "reason",
        "received",
        "record",
        "revision",
        "slow",
        "sure",
        "waiting",
    )

    def __init__(
        self, record: Record, revision: int, before: Shares, after: Shares, sure: bool = True
    ) -> None:
        self.record = record
        self.revision = revision
        self.action: Action = action_of(record)
        self.before = before
        self.after = after
        self.sure = sure
        self.latest: dict[str, Task] = {}  # what each partition was told last
        self.open: dict[str, None] = {}  # partitions that have not done it yet
        self.held: dict[str, int] = {}  # the epochs under which others have
        self.known: dict[str, int] = {}  # epochs of owners that came new meanwhile
        self.reason: str | None = None  # why it was refused
        self.waiting: str | None = None  # why it takes so long
        self.slow = False  # it leaves its place to others of its host
        self.flow_ops = 0
        self._phase = Phase.GROW
        # For its timing and its caller; nothing here depends on them.
        self.received = self.indexed = 0.0
        self.journal_began = self.journal_ended = self.last_done = 0.0
        self.decided_us = self.pushed_us = 0
        self.call: object = None
        self.place = 0

    # Events

    def start(self) -> Next:
        """The operation is journaled; if it has a `reason` already, it is only taken back."""
        if self.reason:
            return self._refused(self.reason)
        tell: dict[str, Share] = {}
        for name, share in self.after.items():
            had = self.before.get(name, NOTHING)
            both = union(had, share)
            if both != had or not self.sure:
                tell[name] = both
        return self._tell(tell) or self._shrink()

    def done(self, done: Done) -> Next:
        """A task has come to its end. Late and foreign answers change nothing."""
        if not self.awaits(done):
            return Next.WAIT
        name = done.partition
        if done.outcome == "done" or (self.gone and done.outcome == "superseded"):
            del self.open[name]
            self.held[name] = done.epoch
            self.flow_ops += done.adds + done.modifies + done.deletes
            self.waiting = None
            if self.open:
                return Next.WAIT
            # The slowest counts: it was the last.
            self.decided_us += done.decided_us
            self.pushed_us += done.pushed_us
            return self._shrink() if self._phase == Phase.GROW else Next.SETTLE
        if done.outcome == "failed":
            return self._refused(done.reason or "a switch refused it")
        if done.outcome == "superseded":
            return Next.CHECK
        return Next.WAIT  # moved: told again when the new owner is known

    def awaits(self, done: Done) -> bool:
        """Whether it is the answer to what a partition was told last, and not by a former owner."""
        task = self.latest.get(done.partition)
        if task is None or task.seq != done.seq or done.partition not in self.open:
            return False
        return not self.outlived(done)

    def outlived(self, done: Done) -> bool:
        """Whether it is by a former owner of the partition, and the new one has to be told."""
        return done.outcome != "superseded" and done.epoch < self.known.get(done.partition, 0)

    def owner_changed(self, name: str, epoch: int | None) -> Next:
        """A partition has a new owner, or (None) is no more. What the old one did may be lost."""
        if epoch is None:
            self.latest.pop(name, None)
            self.held.pop(name, None)
            self.before = {other: share for other, share in self.before.items() if other != name}
            self.after = {other: share for other, share in self.after.items() if other != name}
            if self.open.pop(name, self) is self or self.open:
                return Next.WAIT
            return self._shrink() if self._phase == Phase.GROW else Next.SETTLE
        if name not in self.latest or self.held.get(name) == epoch:
            return Next.WAIT
        self.known[name] = epoch
        self.open[name] = None
        self.held.pop(name, None)
        return Next.SEND

    def withdraw(self) -> Next:
        """The record was removed by somebody else; what was told too late comes to nothing.

        A partition that has been built anew since then does not know that it was too late.
        """
        self._phase = Phase.GONE
        self.open.clear()
        told = [name for name, task in self.latest.items() if task.regions or task.edge]
        return self._tell(dict.fromkeys(told, NOTHING)) or Next.SETTLE

    def again(self) -> Next:
        """The pause after a refusal is over."""
        return Next.SEND if self.open else Next.SETTLE

    # What to do next

    def to_send(self) -> Iterable[tuple[str, Task]]:
        """What partitions are to be told and have not done yet."""
        latest = self.latest
        return [(name, latest[name]) for name in self.open]

    @property
    def complete(self) -> bool:
        """Whether it can be settled."""
        return not self.open and self._phase != Phase.GROW

    @property
    def gone(self) -> bool:
        """Whether its record is, so that there is nothing to store at its end."""
        return self._phase == Phase.GONE

    @property
    def refused(self) -> bool:
        """Whether it has not come to what was asked for."""
        return self.reason is not None

    def outdated(self, epoch: Callable[[str], int | None]) -> list[str]:
        """Partitions whose owner is newer than what was done there."""
        return [name for name, held in self.held.items() if held < (epoch(name) or 0)]

    def settlement(self, now: float, timing: Timing) -> Record:
        """The record as it is to be stored at the end (in the state removed or failed: apart)."""
        record, reason = self.record, self.reason
        if self.action == "begin":
            state, done = ("failed", False) if reason else ("active", True)
        elif self.action == "end":
            state, done = ("active", False) if reason else ("removed", True)
        else:
            state, done = "active", not reason
        changed = replace(
            record,
            state=state,
            by="",
            next=None,
            reason=reason,
            timing=timing,
            flow_ops=self.flow_ops,
            acknowledged=now if done else record.acknowledged,
        )
        if done and record.next and self.action == "update":
            changed = replace(changed, filter=record.next.filter, regions=record.next.regions)
        return changed

    # Rounds

    def _shrink(self) -> Next:
        self._phase = Phase.SHRINK
        tell: dict[str, Share] = {}
        for name in {**self.before, **self.after}:
            target = self.after.get(name, NOTHING)
            told = self.latest.get(name)
            has = (told.regions, told.edge) if told else self.before.get(name, NOTHING)
            if has != target or not (self.sure or told):
                tell[name] = target
        return self._tell(tell) or Next.SETTLE

    def _refused(self, reason: str) -> Next:
        stuck = self._phase >= Phase.BACK or (self.action == "end" and not self.sure)
        if stuck:
            self.waiting = reason
            return Next.PAUSE
        self.reason = reason
        self._phase = Phase.BACK
        self.open.clear()
        back = {name: self.before.get(name, NOTHING) for name in {**self.before, **self.after}}
        # What was never told of this operation has what it had before.
        tell = {name: share for name, share in back.items() if name in self.latest or not self.sure}
        return self._tell(tell) or Next.SETTLE

    def _tell(self, shares: Shares) -> Next | None:
        """Tell partitions something new; None if there is nothing to tell."""
        record = self.record
        seq = task_number(record.seq, self._phase)
        advertised = record.kind == "advertisement"
        for name, (regions, edge) in shares.items():
            self.latest[name] = Task(record.id, seq, record.host, advertised, regions, edge)
            self.open[name] = None
            self.held.pop(name, None)
        return Next.SEND if shares else None
