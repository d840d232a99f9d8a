"""The worker of one partition: takes tasks in slices, has them decided and pushed, and replies.

The worker handles one slice at a time: decide, push, and commit when all switches have
acknowledged. A slice that a switch refuses is undone and tried again in smaller parts, until only
the tasks that do not fit fail. Workers of other partitions go on meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Literal, Protocol

from configurators.engine.engine import Engine
from configurators.environment import Clock
from configurators.partition.options import PartitionOptions
from configurators.partition.slices.push import Push
from configurators.partition.slices.pusher import DecisionPusher, Switches
from configurators.partition.slices.queue import Item, Queue, Slice
from configurators.partition.slices.replies import TaskSource
from configurators.partition.slices.rounds import Rounds
from configurators.partition.slices.spans import SliceSpans
from configurators.partition.slices.task_replies import Reply, TaskReplies
from configurators.partition.slices.turns import Turns
from configurators.streams.messages import PartitionLoad, Task, TaskOutcome, WorkCounters
from configurators.tracing import Tracer
from dzflow.address import Scope
from dzflow.aio import wait_until_set
from sdn.fence import StaleEpoch
from sdn.tables.flows import FlowEntry
from sdn.tables.plans import Plan

log = logging.getLogger(__name__)


class PlannedNetwork(Protocol):
    """A network that has plans for partitions."""

    def plan(self, scope: Scope) -> Plan:
        """The plan for the entries of a scope."""


LogTasks = Callable[[Sequence[Task]], Awaitable[None]]
"""Called with tasks that were carried out, before the worker replies to them. StaleEpoch if they do
not count because another configurator owns the partition."""


class PartitionWorker:
    """The worker and the state of one partition. `run` works on its tasks.

    `reply` is called for each task that ends or waits, `changed` when `load` has changed.
    `slice_numbers` counts the slices of all partitions, `rounds` says when slices begin, and
    `turns` limits how many partitions are worked on at a time (None: all are).
    """

    def __init__(
        self,
        name: str,
        epoch: int,
        engine: Engine,
        scope: Scope,
        switches: Switches,
        reply: Reply,
        changed: Callable[[], None],
        slice_numbers: Iterator[int],
        options: PartitionOptions | None = None,
        rounds: Rounds | None = None,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.engine = engine
        self.scope = scope
        self.entries = 0  # flow entries, counted along
        self.network = 0  # the revision of the network that the engine has taken up
        self.ready = False
        self.reason: str | None = None  # why it waits
        self._refusals: dict[str, str] = {}  # by switch: why it does not have all its entries
        self.counters = WorkCounters(since=epoch)
        self._replies = TaskReplies(name, reply, self.counters)
        self._changed = changed
        self._slice_numbers = slice_numbers
        self._options = options or PartitionOptions()
        self._rounds = rounds or Rounds(self._options.gather)
        self._clock = clock or Clock()
        self._tracer = tracer
        self._turns = turns
        self.queue = Queue(self._clock)
        self._pusher = DecisionPusher(name, engine, switches, self._options, self._clock)
        self._log_tasks: LogTasks | None = None
        self._wake = asyncio.Event()
        self._networks: deque[tuple[int, PlannedNetwork]] = deque()  # to be taken up
        self._between: deque[Callable[[], None]] = deque()
        self._network_after = 0.0  # when a network that was refused is tried again
        self._in_work: list[Item] = []
        self._reported: str | None = None  # the last reason that dispatchers were told
        self._stopping = False

    # What others call

    def put(self, tasks: Iterable[Task], to: TaskSource | None) -> None:
        """Queue tasks; each gets one reply, sooner or later."""
        now = self._clock.monotonic()
        arrived = -len(self.queue)
        for task in tasks:
            if superseded := self.queue.put(Item(task, to, now)):
                arrived += len(superseded)
                self._replies.end(superseded, self.epoch, "superseded")
        self.counters.arrived += arrived + len(self.queue)
        self._wake.set()

    def know(self, active: Iterable[tuple[str, int]]) -> None:
        """Note under which `seq` each id counts that was loaded into the engine."""
        for name, seq in active:
            self._replies.end(self.queue.know(name, seq), self.epoch, "superseded")

    def withdraw(self, names: Iterable[str]) -> None:
        """Remove ids whose records no longer exist; no dispatcher gets a reply.

        An id for which a task waits is left: the source of that task expects a reply.
        """
        idle = [name for name in names if not self.queue.waits(name)]
        self.put([Task(name, self.queue.seq(name), "", False, b"") for name in idle], None)

    def open_items(self) -> list[Item]:
        """The tasks that have no reply yet."""
        return [*self._in_work, *self.queue.waiting()]

    def begin_epoch(self, epoch: int) -> None:
        """Start to own the partition under a new epoch; it is not ready yet."""
        self.epoch = epoch
        self.ready = False

    def take_up(self, revision: int, network: PlannedNetwork) -> None:
        """Go over to another network, which continues the last one that was given here."""
        self._networks.append((revision, network))
        self._wake.set()

    def follow_networks(self) -> None:
        """Take up networks without telling switches, as long as another configurator owns it."""
        while self._networks:
            self.network, network = self._networks.popleft()
            self.engine.commit(self.engine.rewire(network.plan(self.scope)))

    @property
    def done(self) -> int:
        """How many tasks were carried out."""
        return self._replies.carried_out

    @property
    def unfinished(self) -> int:
        """How many tasks have no reply yet."""
        return len(self.queue) + len(self._in_work)

    @property
    def undefined(self) -> int:
        """How many tasks wait for a switch that has not said what it has done."""
        return len(self._in_work) if self.reason else 0

    def declaration(self, switches: Collection[str]) -> dict[str, list[FlowEntry]]:
        """What some switches should hold of this partition, see `DecisionPusher.declaration`."""
        return self._pusher.declaration(switches)

    def switches(self) -> set[str]:
        """The switches that should hold entries of this partition."""
        return {switch for switch, entries in self.engine.entries().items() if entries}

    def say_why(self, reason: str | None) -> None:
        """Show in `load` why the partition waits, or (None) that it no longer waits."""
        self.reason = reason
        self._changed()

    def note_refusal(self, switch: str, reason: str) -> None:
        """Show in `load` that a switch does not take what it should hold of the partition."""
        self._refusals[switch] = reason
        self._changed()

    def keep_refusals(self, switches: Collection[str]) -> None:
        """Show refusals of these switches only: the others have taken everything."""
        kept = {switch: why for switch, why in self._refusals.items() if switch in switches}
        if len(kept) < len(self._refusals):
            self._refusals = kept
            self._changed()

    def load(self) -> PartitionLoad:
        """State and counts of this partition, for dispatchers."""
        reason = self.reason or next(iter(self._refusals.values()), None)
        state: Literal["loading", "ready", "waiting"] = "waiting" if reason else "ready"
        return PartitionLoad(
            self.name,
            self.epoch,
            state if self.ready else "loading",
            self.unfinished,
            len(self.engine),
            self.entries,
            self.done,
            reason,
            len(self._in_work) if self._reported else 0,
            self._oldest_age(),
            copy(self.counters),
        )

    async def clear(self) -> None:
        """Delete all entries of the partition, because its space is gone. `run` must have ended."""
        await self._pusher.clear(self.epoch, partial(self._report_waiting, ()))

    def leave(self) -> None:
        """Reply "moved" to all tasks that are left, so that the new owner gets them.

        `run` must have ended.
        """
        left, self._in_work = self._in_work, []
        self._replies.end([*left, *self.queue.clear()], self.epoch, "moved")

    def between_slices(self, call: Callable[[], None]) -> None:
        """Have `run` make a call when no slice is in progress.

        The engine has then exactly what was carried out.
        """
        self._between.append(call)
        self._wake.set()

    def stop_soon(self) -> None:
        """Have `run` end when no slice is in progress."""
        self._stopping = True
        self._wake.set()

    def keep_running(self) -> None:
        """Have `run` not end, if it has not yet ended since `stop_soon`."""
        self._stopping = False

    async def run(self, log_tasks: LogTasks | None = None) -> str:
        """Work until cancelled, or until told to stop; then the result is empty.

        The result is the reason if another configurator owns the partition.
        """
        self._stopping = False
        self._log_tasks = log_tasks
        try:
            while not self._stopping:
                if self._between:
                    self._between.popleft()()
                if self._network_due:
                    await self._rewire(*self._networks[0])
                elif len(self.queue):
                    await self._next_slice()
                elif not self._between:
                    await self._sleep()
        except StaleEpoch as stale:
            return str(stale)
        return ""

    # Slices

    async def _sleep(self) -> None:
        self._wake.clear()
        patience = None
        if self._networks:
            patience = max(0.0, self._network_after - self._clock.monotonic())
        await wait_until_set(self._wake, patience)  # after it, the network is tried again

    @property
    def _network_due(self) -> bool:
        """Whether a network is to be taken up now."""
        return bool(self._networks) and self._clock.monotonic() >= self._network_after

    async def _next_slice(self) -> None:
        if len(self.queue) < self._options.slice_limit:
            await self._rounds.wait()
        if self._turns is None:
            with self._rounds.working():
                await self._work_on_slice()
            return
        with self._turns.ask(self.queue.oldest or 0.0, self._wake.set) as turn:
            while not (turn.granted or self._stopping or self._between or self._network_due):
                self._wake.clear()
                await self._wake.wait()
            if turn.granted:
                with self._rounds.working():
                    await self._work_on_slice()

    async def _work_on_slice(self) -> None:
        options = self._options
        taken = self.queue.take(self.engine, options.ordering, options.slice_limit)
        self._in_work = [*taken.settled, *taken.slice.items]
        self._count_wait([*self._in_work, *(item for item, _ in taken.refused)])
        for item, wrong in taken.refused:
            self._replies.end([item], self.epoch, "failed", wrong)
        self.queue.ended(self.engine, [item for item, _ in taken.refused])
        if taken.settled:
            if self._log_tasks:
                await self._log_tasks([item.task for item in taken.settled])
            self._finish(taken.settled, "done")
        todo = [taken.slice] if len(taken.slice) else []
        while todo:
            part = todo.pop()
            reason = await self._carry_out_slice(part)
            if reason is None:
                continue
            if len(part) == 1:
                self._finish(part.items, "failed", reason)
                continue
            todo += [p for p in map(self._without_superseded, reversed(part.parts())) if len(p)]
        await asyncio.sleep(0)  # partitions take turns, even if no switch has to be waited for

    def _count_wait(self, items: Sequence[Item]) -> None:
        """Count how long tasks have waited until now."""
        now = self._clock.monotonic()
        self.counters.waited_s += sum([now - item.at for item in items])

    def _oldest_age(self) -> float:
        """How long the oldest task without a reply has waited, in seconds; 0 if there is none."""
        now = self._clock.monotonic()
        waiting = self.queue.oldest
        oldest = min((item.at for item in self._in_work), default=now)
        return now - (oldest if waiting is None else min(oldest, waiting))

    def _without_superseded(self, part: Slice) -> Slice:
        """A slice without the tasks for whose ids newer tasks have come, which are finished."""
        counts = [self.queue.counts(item) for item in part.items]
        self._finish(
            [item for item, still in zip(part.items, counts, strict=True) if not still],
            "superseded",
        )
        return part.of(i for i, still in enumerate(counts) if still)

    async def _carry_out_slice(self, part: Slice) -> str | None:
        """Decide and push a slice, and reply; if it does not fit, undo it and return the reason."""
        if self._tracer is None:
            return await self._decide_and_push(part)
        tasks = [item.task for item in part.items]
        spans = SliceSpans.begin(self._tracer, self.name, tasks)
        if spans is None:
            return await self._decide_and_push(part)
        result: str | None = "another configurator owns the partition, or this one stops"
        try:
            result = await self._decide_and_push(part, spans.context)
        finally:
            spans.end(result or "")
        return result

    async def _decide_and_push(self, part: Slice, trace: bytes = b"") -> str | None:
        ordering, now, cpu = self._options.ordering, self._clock.monotonic, self._clock.cpu
        counters = self.counters
        began, began_cpu = now(), cpu()
        decision = self.engine.decide(part.partials, ordering)
        decided = now()
        counters.decided_s += cpu() - began_cpu
        push = Push(decision, lambda: self.engine.decide(part.partials, ordering), trace)
        reason = await self._carry_out(push, part.items)
        pushed = now() - decided
        counters.pushed_s += pushed
        counters.slices += 1
        if reason is None:
            if self._log_tasks:
                await self._log_tasks([item.task for item in part.items])
            number = next(self._slice_numbers)
            self._replies.end_slice(part, self.epoch, push, number, decided - began, pushed)
            self._forget(part.items)
        return reason

    async def _rewire(self, revision: int, network: PlannedNetwork) -> None:
        plan = network.plan(self.scope)
        push = Push(self.engine.rewire(plan), lambda: self.engine.rewire(plan))
        reason = await self._carry_out(push, ())
        if reason is None:
            self._networks.popleft()
            self.network = revision
            self._changed()
            return
        # Requests that end may make room, so the partition goes on with the network as it was.
        log.warning("partition %s cannot take up the network: %s", self.name, reason)
        self.reason = f"cannot take up the changed network yet: {reason}"
        self._changed()
        self._network_after = self._clock.monotonic() + self._options.longest_pause

    async def _carry_out(self, push: Push, items: Collection[Item]) -> str | None:
        """Push a decision and commit it; if a switch refuses, undo it and return the reason."""
        on_wait = partial(self._report_waiting, items)
        reason = await self._pusher.carry_out(push, self.epoch, on_wait)
        adds, modifies, deletes = push.tally
        self.entries += adds - deletes
        self.counters.flow_ops += adds + modifies + deletes
        if self.reason:
            self.reason = self._reported = None
            self._changed()
        return reason

    # Replies

    def _report_waiting(self, items: Collection[Item], reason: str) -> None:
        """Show why the partition waits, and tell the sources of these tasks, once per reason."""
        self.reason = reason
        if reason == self._reported:
            return
        self._reported = reason
        log.warning("partition %s waits: %s", self.name, reason)
        self._replies.wait(items, reason)
        self._changed()

    def _finish(
        self, items: Collection[Item], outcome: TaskOutcome, reason: str | None = None
    ) -> None:
        """Reply to tasks of the slice that is in progress, and forget them."""
        self._replies.end(items, self.epoch, outcome, reason)
        self._forget(items)

    def _forget(self, items: Collection[Item]) -> None:
        self.queue.ended(self.engine, items)
        gone = {id(item) for item in items}
        self._in_work = [item for item in self._in_work if id(item) not in gone]
