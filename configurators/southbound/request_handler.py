"""Handles the requests of configurators and dispatchers to a southbound process, with a driver."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any

from configurators.environment import Clock
from configurators.southbound.counts import SouthboundCounts
from configurators.streams.messages import (
    Applied,
    Apply,
    Declare,
    FindVacant,
    Flows,
    Raised,
    RaiseEpochs,
    ReadFlows,
    ToSouthbound,
    Vacant,
)
from configurators.streams.packing import pack_entries, unpack_entries, unpack_ops
from configurators.streams.stream import Stream
from configurators.tracing import Attributes, Tracer
from dzflow.errors import DzflowError
from sdn.driver import SwitchDriver
from sdn.fence import StaleEpoch
from sdn.outcomes import Acknowledged, Outcome, Undefined
from sdn.tables.pipeline import SwitchNumbers

_ACKNOWLEDGED = Acknowledged()


class RequestHandler:
    """Answers requests about the switches that this process is responsible for.

    A partition has to be declared for a switch before batches of it are carried out there: until
    then this process does not know what the switch should hold of the partition. Nothing is done
    for a partition that is `gone`, because the map was changed. `audited` is called after an audit,
    before its outcomes are sent.
    """

    def __init__(
        self,
        driver: SwitchDriver,
        gone: Callable[[str], bool] = lambda _: False,
        audited: Callable[[], None] = lambda: None,
        counts: SouthboundCounts | None = None,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.switches: frozenset[str] = frozenset()  # that this process is responsible for
        self._driver = driver
        self._gone = gone
        self._audited = audited
        self._counts = counts or SouthboundCounts()
        self._clock = clock or Clock()
        self._tracer = tracer
        self._declaring: dict[str, asyncio.Event] = {}  # by partition; set when that is done

    def set_switches(self, switches: Iterable[str], generation: int) -> None:
        """Be responsible for these switches from now on, and for no others."""
        self.switches = frozenset(switches)
        self._driver.assign(self.switches, generation)

    def handle(self, _: Stream, message: ToSouthbound) -> "Awaitable[Any]":
        """Carry a request out, and return its answer.

        Requests of one partition that follow a declaration are carried out after it: a declaration
        that was overtaken would revert what is newer.
        """
        if type(message) is Apply:
            declared = self._declaring.get(message.partition)
            if message.trace:
                return self._traced("push", message, partial(self._apply, message, declared))
            return self._apply(message, declared)
        if type(message) is RaiseEpochs:
            return self._raise(message)
        if type(message) is Declare:
            before = [done for name in message.epochs if (done := self._declaring.get(name))]
            done = asyncio.Event()
            self._declaring.update(dict.fromkeys(message.epochs, done))
            if message.trace:
                declare = partial(self._declare_in_turn, message, before, done)
                return self._traced("declare", message, declare)
            return self._declare_in_turn(message, before, done)
        if type(message) is FindVacant:
            return self._find_vacant(message)
        assert type(message) is ReadFlows
        return self._read(message)

    async def _traced(
        self, name: str, message: Apply | Declare, work: Callable[[], Awaitable[Applied]]
    ) -> Applied:
        """Do this work within a span, if this process traces."""
        if self._tracer is None:
            return await work()
        span = self._tracer.begin(name, _about(message), message.trace)
        if span is None:
            return await work()
        error = "it was not carried out"
        try:
            applied = await work()
            error = applied.stale or ""
            outcomes = applied.outcomes.values()
            span.set(Counter(f"dzflow.{type(each).__name__.lower()}" for each in outcomes))
        finally:
            span.end(error)
        return applied

    async def _apply(self, message: Apply, declared: asyncio.Event | None) -> Applied:
        if declared:
            await declared.wait()
        began = self._clock.monotonic()
        partition = message.partition
        if self._gone(partition):
            return Applied({}, _no_longer(partition))
        outcomes: dict[str, Outcome] = {}
        batch = {}
        for switch, packed in message.batch.items():
            if switch not in self.switches:
                outcomes[switch] = _not_ours(switch)
            elif partition not in self._driver.declared(switch):
                outcomes[switch] = Undefined(
                    f"switch {switch}: partition {partition} has to be declared there first"
                )
            else:
                batch[switch] = unpack_ops(packed)
        try:
            found = await self._driver.apply(partition, message.epoch, batch)
        except StaleEpoch as error:
            return Applied({}, str(error))
        self._counts.pushed(batch, found, self._clock.monotonic() - began)
        return Applied(outcomes | found if outcomes else found)

    async def _raise(self, message: RaiseEpochs) -> Raised:
        stale = {}
        for partition, epoch in message.epochs.items():
            try:
                if self._gone(partition):
                    raise StaleEpoch(_no_longer(partition))
                await self._driver.raise_epoch(partition, epoch)
            except StaleEpoch as error:
                stale[partition] = str(error)
        declared = [self._driver.declared(switch) for switch in self.switches]
        undeclared = [name for name in message.epochs if any(name not in d for d in declared)]
        return Raised(stale, undeclared)

    async def _declare_in_turn(
        self, message: Declare, before: Iterable[asyncio.Event], done: asyncio.Event
    ) -> Applied:
        asked = self.switches if message.switches is None else message.switches
        try:
            for earlier in before:
                await earlier.wait()
            await self._declare(message, asked)
        except StaleEpoch as error:
            return Applied({}, str(error))
        finally:
            done.set()
            for partition in message.epochs:
                if self._declaring.get(partition) is done:
                    del self._declaring[partition]
        outcomes: dict[str, Outcome] = {s: _not_ours(s) for s in asked}
        ours = [switch for switch in asked if switch in self.switches]
        if message.check:
            outcomes |= await self._driver.audit(*ours)
            self._audited()
            return Applied(outcomes)
        return Applied(outcomes | dict.fromkeys(ours, _ACKNOWLEDGED))

    async def _declare(self, message: Declare, asked: Collection[str]) -> None:
        for partition, epoch in message.epochs.items():
            # Each time: another process may have become responsible for a switch meanwhile.
            ours = [switch for switch in asked if switch in self.switches]
            packed = message.entries.get(partition, {})
            expected = {s: unpack_entries(packed[s]) for s in ours if s in packed}
            if self._gone(partition):
                raise StaleEpoch(_no_longer(partition))
            await self._driver.declare(partition, epoch, expected, ours)
            await asyncio.sleep(0)  # let smaller requests through

    async def _read(self, message: ReadFlows) -> Flows:
        try:
            found = await self._driver.read(message.switch)
            return Flows(pack_entries(found), None, found.counts)
        except (DzflowError, TimeoutError) as error:
            return Flows(b"", str(error) or f"switch {message.switch} does not answer in time")

    async def _find_vacant(self, message: FindVacant) -> Vacant:
        if message.switch not in self.switches:
            return Vacant(SwitchNumbers(), _not_ours(message.switch).reason)
        try:
            return Vacant(await self._driver.vacant(message.switch, message.numbers))
        except (DzflowError, TimeoutError) as error:
            reason = str(error) or f"switch {message.switch} does not answer in time"
            return Vacant(SwitchNumbers(), reason)


def _no_longer(partition: str) -> str:
    return f"partition {partition} no longer exists: the partition map has changed"


def _about(message: Apply | Declare) -> Attributes:
    if isinstance(message, Apply):
        return {"dzflow.partition": message.partition, "dzflow.switches": len(message.batch)}
    switches = message.switches or ()
    return {"dzflow.partitions": len(message.epochs), "dzflow.switches": len(switches)}


def _not_ours(switch: str) -> Undefined:
    return Undefined(f"switch {switch}: this southbound process is not responsible for it")
