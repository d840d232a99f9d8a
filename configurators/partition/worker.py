"""The worker of one partition: takes slices, has them decided, sees them through, answers.

One slice at a time: decide, push, and when all switches have acknowledged, commit. What a switch
refuses is undone everywhere and tried again in smaller parts, until only what does not fit fails.
While nobody knows what a switch has done, the worker waits for it, and other partitions go on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from configurators.engine.engine import Decision, Engine, Ordering
from configurators.partition.push import Pause, Push, ops_of, see, shares, tally
from configurators.partition.queue import Item, Queue, Slice
from configurators.partition.undo import way_back
from configurators.streams.messages import Done, PartitionLoad, Task, TaskOutcome, Waiting
from dzflow.address import Scope
from sdn.fence import StaleEpoch
from sdn.flows import Batch, Change, FlowEntry, FlowKey, FlowOp
from sdn.outcomes import Outcome
from sdn.plans import Plan

log = logging.getLogger(__name__)

_LONGEST_GATHER = 4  # times as long as one task waits, the first of a slice waits at most


class Switches(Protocol):
    """The way to the switches, wherever they are connected."""

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if somebody else owns it."""

    async def usable(self, switches: Collection[str], patience: float) -> None:
        """Return when one of these switches can be used, or after so many seconds."""


class Wired(Protocol):
    """A network that has plans for partitions."""

    def plan(self, scope: Scope) -> Plan:
        """The plan for the entries of a scope."""


class PartitionOptions(Struct, frozen=True):
    """How partitions are worked on; times are in seconds."""

    ordering: Ordering = "net"
    slice_limit: int = 500
    gather: float = 0.005  # for how long a task waits for others; the first at most 4 times that
    tell_after: float = 0.5  # of waiting
    shortest_pause: float = 0.02  # before a switch is tried again that should be usable
    longest_pause: float = 2.0


class Ticks:
    """Moments at which partitions go on that wait for more tasks: many at once, so that what they
    send goes together."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._coming: asyncio.Event | None = None

    async def next(self) -> None:
        """Wait for the next one; if nobody did before, that is after a pause."""
        if self._coming is None:
            self._coming = asyncio.Event()
            asyncio.get_running_loop().call_later(self._pause, self._come)
        await self._coming.wait()

    def _come(self) -> None:
        assert self._coming
        self._coming.set()
        self._coming = None


Answer = Callable[[object, Done | Waiting], None]
"""Called with whom a task came from, and what is to be told."""

Keep = Callable[[Sequence[Task]], Awaitable[None]]
"""Called with tasks that were carried out, before they are answered. StaleEpoch if they do not
count, because somebody else owns the partition."""


class Worker:
    """One partition that this process owns. `run` works until it is cancelled or not the owner.

    `answer` is called for each task that comes to its end, or waits; `changed` when there is
    something new to be seen in `load`. `numbers` counts slices, and `ticks` are when they begin.
    """

    def __init__(
        self,
        name: str,
        epoch: int,
        engine: Engine,
        scope: Scope,
        switches: Switches,
        answer: Answer,
        changed: Callable[[], None],
        numbers: Iterator[int],
        options: PartitionOptions | None = None,
        ticks: "Ticks | None" = None,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.engine = engine
        self.scope = scope
        self.queue = Queue()
        self.entries = 0  # flow entries, counted along
        self.network = 0  # the revision of the network that it has taken up
        self.ready = False
        self.reason: str | None = None  # why it waits
        self.done = 0
        self.keep: Keep | None = None
        self._switches = switches
        self._answer = answer
        self._changed = changed
        self._numbers = numbers
        self._options = options or PartitionOptions()
        self._ticks = ticks or Ticks(self._options.gather)
        self._wake = asyncio.Event()
        self._networks: deque[tuple[int, Wired]] = deque()
        self._network_after = 0.0  # when one that was refused is tried again
        self._push: Push | None = None
        self._last: Decision | None = None  # that is being carried out or undone
        self._in_work: list[Item] = []
        self._told: str | None = None
        self._clearing = False
        self._stopping = False

    # What others call

    def put(self, tasks: Iterable[Task], to: object) -> None:
        """Take tasks; each is answered once, sooner or later."""
        now = time.monotonic()
        for task in tasks:
            gone = self.queue.put(Item(task, to, now))
            self._end(gone, "superseded")
        self._wake.set()

    def know(self, active: Iterable[tuple[str, int]]) -> None:
        """Ids were loaded into the engine that count under these `seq`s."""
        for name, seq in active:
            self._end(self.queue.know(name, seq), "superseded")

    def withdraw(self, names: Iterable[str]) -> None:
        """Take out ids whose records are no more; nobody is answered.

        Not those for which a task waits: whoever has sent it is to be answered.
        """
        idle = [name for name in names if not self.queue.waits(name)]
        self.put([Task(name, self.queue.seq(name), "", False, b"") for name in idle], None)

    def asked_by(self) -> list[object]:
        """Whom the tasks came from that are not answered yet."""
        return [item.to for item in (*self._in_work, *self.queue.waiting())]

    def take_up(self, revision: int, network: Wired) -> None:
        """Go over to another network, which continues the one taken up (or to be) before it."""
        self._networks.append((revision, network))
        self._wake.set()

    def follow_networks(self) -> None:
        """Take up networks without telling switches; for one who is not the owner."""
        while self._networks:
            self.network, network = self._networks.popleft()
            self.engine.commit(self.engine.rewire(network.plan(self.scope)))

    @property
    def unfinished(self) -> int:
        """How many tasks it has not answered yet."""
        return len(self.queue) + len(self._in_work)

    def declaration(self, switches: Collection[str]) -> dict[str, list[FlowEntry]]:
        """What some switches should hold of this partition, to be declared to a driver.

        In the first round of a push that is what was before, and everything is pushed again: nobody
        can be sure who has it. Later that is the end: all that is to be added stands.
        """
        if self._clearing:
            return {}
        push = self._push
        if push is None or push.round:
            return self.engine.entries(switches)
        self.engine.discard(push.decision)
        before = self.engine.entries(switches)
        push.decision = push.again()
        push.restart = True
        return before

    def say_why(self, reason: str | None) -> None:
        """Show in `load` why it waits, or (None) that it does no longer."""
        self.reason = reason
        self._changed()

    def load(self) -> PartitionLoad:
        """How it is doing."""
        state: Literal["loading", "ready", "waiting"] = "waiting" if self.reason else "ready"
        return PartitionLoad(
            self.name,
            self.epoch,
            state if self.ready else "loading",
            self.unfinished,
            len(self.engine),
            self.entries,
            self.done,
            self.reason,
        )

    async def clear(self) -> None:
        """Delete all its entries, because its space is gone. `run` must have ended."""
        self._clearing = True
        found: dict[str, dict[FlowKey, FlowEntry]] = {}
        for switch, entries in self.engine.entries().items():
            found[switch] = {entry.key: entry for entry in entries}
        for batch in self._last.rounds if self._last else ():
            for switch, ops in batch.items():  # nobody knows how far that came
                found.setdefault(switch, {}).update((op.entry.key, op.entry) for op in ops)
        left = {
            switch: [FlowOp(Change.DELETE, entry) for entry in entries.values()]
            for switch, entries in found.items()
        }
        pause = Pause(self._options.shortest_pause, self._options.longest_pause)
        while left:
            outcomes = await self._switches.apply(self.name, self.epoch, left)
            seen = see(left, outcomes)
            if seen.refused:
                log.error("partition %s cannot be cleared: %s", self.name, seen.refused)
            if seen.unknown:
                await self._wait(pause, left, seen.unknown, ())

    def leave(self) -> None:
        """Answer all that is left: it is to be sent to the new owner. `run` must have ended."""
        left, self._in_work = self._in_work, []
        self._end([*left, *self.queue.clear()], "moved")

    def stop_soon(self) -> None:
        """Have `run` end when nothing is under way."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> str:
        """Work until cancelled, or until told to stop (returns nothing then).

        Returns the reason if somebody else owns the partition.
        """
        self._stopping = False
        try:
            while not self._stopping:
                if self._networks and time.monotonic() >= self._network_after:
                    await self._rewire(*self._networks[0])
                elif len(self.queue):
                    await self._next_slice()
                else:
                    await self._sleep()
        except StaleEpoch as stale:
            return str(stale)
        return ""

    # Working

    async def _sleep(self) -> None:
        self._wake.clear()
        patience = None
        if self._networks:
            patience = max(0.0, self._network_after - time.monotonic())
        try:
            async with asyncio.timeout(patience):
                await self._wake.wait()
        except TimeoutError:
            return  # the network is tried again

    async def _next_slice(self) -> None:
        options = self._options
        await self._gather()
        taken = self.queue.take(self.engine, options.ordering, options.slice_limit)
        self._in_work = [*taken.settled, *taken.slice.items]
        for item, wrong in taken.refused:
            self._end([item], "failed", wrong)
        self.queue.ended(self.engine, [item for item, _ in taken.refused])
        if taken.settled:
            if self.keep:
                await self.keep([item.task for item in taken.settled])
            self._finish(taken.settled, "done")
        todo = [taken.slice] if len(taken.slice) else []
        while todo:
            part = todo.pop()
            reason = await self._see_through(part)
            if reason is None:
                continue
            if len(part) == 1:
                self._finish(part.items, "failed", reason)
                continue
            todo += [p for p in map(self._still_counting, reversed(part.parts())) if len(p)]
        await asyncio.sleep(0)  # partitions take turns, also where no switch is waited for

    async def _gather(self) -> None:
        """Wait for more tasks: until none has come for a while, or the first waits long enough."""
        pause = self._options.gather
        since = self.queue.oldest or 0.0
        while len(self.queue) < self._options.slice_limit:
            due = min(self.queue.newest + pause, since + _LONGEST_GATHER * pause)
            if due <= time.monotonic() + pause / 2:
                return
            await self._ticks.next()

    def _still_counting(self, part: Slice) -> Slice:
        counts = [self.queue.counts(item) for item in part.items]
        self._finish(
            [item for item, still in zip(part.items, counts, strict=True) if not still],
            "superseded",
        )
        return part.of(i for i, still in enumerate(counts) if still)

    async def _see_through(self, part: Slice) -> str | None:
        """Decide and push a slice; if it does not fit, undo it and say why."""
        ordering = self._options.ordering
        began = time.perf_counter()
        decision = self.engine.decide(part.partials, ordering)
        decided = time.perf_counter()
        push = Push(decision, lambda: self.engine.decide(part.partials, ordering))
        reason = await self._carry_out(push, part.items)
        if reason is None:
            pushed = time.perf_counter() - decided
            if self.keep:
                await self.keep([item.task for item in part.items])
            self._answer_done(part, push, decided - began, pushed)
        return reason

    async def _rewire(self, revision: int, network: Wired) -> None:
        plan = network.plan(self.scope)
        push = Push(self.engine.rewire(plan), lambda: self.engine.rewire(plan))
        reason = await self._carry_out(push, ())
        if reason is None:
            self._networks.popleft()
            self.network = revision
            self._changed()
            return
        # Requests that end may make room; so work goes on with the network as it was.
        log.warning("partition %s cannot take up the network: %s", self.name, reason)
        self.reason = f"cannot take up the changed network yet: {reason}"
        self._changed()
        self._network_after = time.monotonic() + self._options.longest_pause

    async def _carry_out(self, push: Push, items: Collection[Item]) -> str | None:
        """Push a decision and commit it; if a switch refuses, undo it and say why."""
        self._push, self._last = push, push.decision
        reason = await self._push_rounds(push, items)
        self._push = None
        if reason is None:
            self.engine.commit(push.decision)
            push.tally = adds, _, deletes = tally(push.decision)
            self.entries += adds - deletes
        else:
            undo = self.engine.discard(push.decision)
            await self._undo(push, undo, items)
        self._last = None
        if self.reason:
            self.reason = self._told = None
            self._changed()
        return reason

    async def _push_rounds(self, push: Push, items: Collection[Item]) -> str | None:
        while push.round < len(push.decision.rounds):
            left = dict(push.decision.rounds[push.round])
            pause = Pause(self._options.shortest_pause, self._options.longest_pause)
            while left:
                outcomes = await self._switches.apply(self.name, self.epoch, left)
                seen = see(left, outcomes)
                push.note(seen)
                if seen.refused:
                    return seen.refused
                if seen.unknown:
                    await self._wait(pause, left, seen.unknown, items)
                if push.restart:
                    push.restart = False
                    left = dict(push.decision.rounds[push.round])
            push.round += 1
        return None

    async def _undo(self, push: Push, undo: Decision, items: Collection[Item]) -> None:
        """Bring all switches back that have carried out something."""
        pause = Pause(self._options.shortest_pause, self._options.longest_pause)
        while True:
            left: Batch = {}
            for switch, done in push.carried_out.items():
                ops = way_back(ops_of(push.decision, switch), done, ops_of(undo, switch))
                if ops:
                    left[switch] = list(ops)
            if not left:
                return
            outcomes = await self._switches.apply(self.name, self.epoch, left)
            seen = see(left, outcomes)
            push.note(seen)
            if seen.refused or seen.unknown:
                await self._wait(pause, left, seen.refused or seen.unknown, items)

    async def _wait(
        self, pause: "Pause", left: Batch, reason: str, items: Collection[Item]
    ) -> None:
        if pause.lasted >= self._options.tell_after:
            self.reason = reason
            if reason != self._told:
                self._told = reason
                self._tell_waiting(items, reason)
                self._changed()
        await asyncio.sleep(pause.next())
        patience = self._options.tell_after - pause.lasted
        await self._switches.usable(left, max(patience, self._options.longest_pause / 4))

    # Answering

    def _tell_waiting(self, items: Collection[Item], reason: str) -> None:
        log.warning("partition %s waits: %s", self.name, reason)
        by_whom: dict[int, tuple[object, list[tuple[str, int]]]] = {}
        for item in items:
            tasks = by_whom.setdefault(id(item.to), (item.to, []))[1]
            tasks.append((item.task.id, item.task.seq))
        for to, tasks in by_whom.values():
            self._answer(to, Waiting(self.name, tasks, reason))

    def _answer_done(self, part: Slice, push: Push, decided: float, pushed: float) -> None:
        portions = [shares(total, len(part)) for total in push.tally]
        switches = len({switch for batch in push.decision.rounds for switch in batch})
        number = next(self._numbers)
        for item, adds, modifies, deletes in zip(part.items, *portions, strict=True):
            done = Done(
                self.name,
                item.task.id,
                item.task.seq,
                self.epoch,
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
            self._answer(item.to, done)
        self.done += len(part)
        self._forget(part.items)

    def _finish(
        self, items: Collection[Item], outcome: TaskOutcome, reason: str | None = None
    ) -> None:
        """Answer tasks of the slice that is worked on."""
        self._end(items, outcome, reason)
        self._forget(items)

    def _forget(self, items: Collection[Item]) -> None:
        self.queue.ended(self.engine, items)
        gone = {id(item) for item in items}
        self._in_work = [item for item in self._in_work if id(item) not in gone]

    def _end(self, items: Iterable[Item], outcome: TaskOutcome, reason: str | None = None) -> None:
        for item in items:
            done = Done(self.name, item.task.id, item.task.seq, self.epoch, outcome, reason)
            self._answer(item.to, done)
            self.done += outcome == "done"
