"""Pushes the decisions of one partition to the switches, and undoes those that a switch refuses.

A decision is committed when all switches have acknowledged it. If a switch refuses an operation,
all switches are brought back to where they were. While it is unknown what a switch has done,
the pusher waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from configurators.engine.engine import Decision, Engine
from configurators.environment import Clock
from configurators.partition.options import PartitionOptions
from configurators.partition.slices.push import Backoff, Push, ops_of, sort_outcomes, tally
from configurators.partition.slices.undo import way_back
from sdn.outcomes import Outcome
from sdn.tables.flows import Batch, Change, FlowEntry, FlowKey, FlowOp

log = logging.getLogger(__name__)

OnWait = Callable[[str], None]
"""Called with the reason, again and again, while a push has waited longer than `tell_after`."""


class Switches(Protocol):
    """The way to the switches, whichever southbound process they are connected to."""

    async def apply(
        self, partition: str, epoch: int, batch: Batch, trace: bytes = b""
    ) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the epoch is over.

        `trace` is the context of the span that they belong to, if there is one.
        """

    async def usable(self, switches: Collection[str], patience: float) -> None:
        """Return when one of these switches can be used, or after so many seconds."""


class DecisionPusher:
    """Has the switches carry out the decisions of one partition's engine, one at a time."""

    def __init__(
        self,
        partition: str,
        engine: Engine,
        switches: Switches,
        options: PartitionOptions,
        clock: Clock,
    ) -> None:
        self._partition = partition
        self._engine = engine
        self._switches = switches
        self._options = options
        self._clock = clock
        self._push: Push | None = None  # the one that is in progress
        self._unfinished: Decision | None = None  # that is being carried out or undone
        self._clearing = False

    async def carry_out(self, push: Push, epoch: int, on_wait: OnWait) -> str | None:
        """Push a decision and commit it; if a switch refuses, undo it and return the reason."""
        self._push, self._unfinished = push, push.decision
        reason = await self._push_rounds(push, epoch, on_wait)
        self._push = None
        if reason is None:
            self._engine.commit(push.decision)
            push.tally = tally(push.decision)
        else:
            undo = self._engine.discard(push.decision)
            await self._undo(push, undo, epoch, on_wait)
        self._unfinished = None
        return reason

    async def clear(self, epoch: int, on_wait: OnWait) -> None:
        """Delete all entries of the partition; nothing else may be in progress."""
        self._clearing = True
        found: dict[str, dict[FlowKey, FlowEntry]] = {}
        for switch, entries in self._engine.entries().items():
            found[switch] = {entry.key: entry for entry in entries}
        for batch in self._unfinished.rounds if self._unfinished else ():
            for switch, ops in batch.items():  # how much was carried out is unknown
                found.setdefault(switch, {}).update((op.entry.key, op.entry) for op in ops)
        left = {
            switch: [FlowOp(Change.DELETE, entry) for entry in entries.values()]
            for switch, entries in found.items()
        }
        backoff = self._backoff()
        while left:
            outcomes = await self._switches.apply(self._partition, epoch, left)
            results = sort_outcomes(left, outcomes)
            if results.refused:
                log.error("partition %s cannot be cleared: %s", self._partition, results.refused)
            if results.unknown:
                await self._wait(backoff, left, results.unknown, on_wait)

    def declaration(self, switches: Collection[str]) -> dict[str, list[FlowEntry]]:
        """What some switches should hold of this partition, to be declared to a driver.

        In the first round of a push that is the state before the push, and the whole round is
        pushed again, because it is not certain which switch has carried it out. In later rounds
        it is the state after the push: all additions are in place by then.
        """
        if self._clearing:
            return {}
        push = self._push
        if push is None or push.round:
            return self._engine.entries(switches)
        self._engine.discard(push.decision)
        before = self._engine.entries(switches)
        push.decision = push.again()
        push.restart = True
        return before

    async def _push_rounds(self, push: Push, epoch: int, on_wait: OnWait) -> str | None:
        while push.round < len(push.decision.rounds):
            left = dict(push.decision.rounds[push.round])
            backoff = self._backoff()
            while left:
                outcomes = await self._switches.apply(self._partition, epoch, left, push.trace)
                results = sort_outcomes(left, outcomes)
                push.note(results)
                if results.refused:
                    return results.refused
                if results.unknown:
                    await self._wait(backoff, left, results.unknown, on_wait)
                if push.restart:
                    push.restart = False
                    left = dict(push.decision.rounds[push.round])
            push.round += 1
        return None

    async def _undo(self, push: Push, undo: Decision, epoch: int, on_wait: OnWait) -> None:
        """Bring every switch back that has carried out an operation of the push."""
        backoff = self._backoff()
        while True:
            left: Batch = {}
            for switch, done in push.carried_out.items():
                ops = way_back(ops_of(push.decision, switch), done, ops_of(undo, switch))
                if ops:
                    left[switch] = list(ops)
            if not left:
                return
            outcomes = await self._switches.apply(self._partition, epoch, left, push.trace)
            results = sort_outcomes(left, outcomes)
            push.note(results)
            if results.refused or results.unknown:
                await self._wait(backoff, left, results.refused or results.unknown, on_wait)

    async def _wait(self, backoff: Backoff, left: Batch, reason: str, on_wait: OnWait) -> None:
        """Pause, then wait until one of the switches that are left can be used."""
        if backoff.lasted >= self._options.tell_after:
            on_wait(reason)
        await asyncio.sleep(backoff.next())
        patience = self._options.tell_after - backoff.lasted
        await self._switches.usable(left, max(patience, self._options.longest_pause / 4))

    def _backoff(self) -> Backoff:
        return Backoff(self._options.shortest_pause, self._options.longest_pause, self._clock)
