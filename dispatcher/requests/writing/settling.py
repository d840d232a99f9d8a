"""Settles operations: writes the result when all partitions have done their part."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace
from configurators.store.documents import decode_record, encode
from configurators.store.etcd.client import Compare, Delete, Put, StoreError
from configurators.store.keys import record_key, ttl_key
from configurators.store.model import Record
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.requests.delivery.delivery import Delivery
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.operation import Ending, Operation, Stage
from dispatcher.requests.steps import Steps
from dispatcher.requests.timers import call_after
from dispatcher.requests.timing import timing_of
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.settled_records import SettledRecords
from dispatcher.requests.writing.wait_reasons import WaitReasons
from dispatcher.requests.writing.writes import Write, WriteResult
from dzflow.aio import BackgroundTasks

_log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds before the next attempt
# Seconds between transactions: for each other operation in flight, and at the most. A lone
# operation has nothing to wait for.
_APART_EACH, _APART = 0.00015, 0.01


class Settling:
    """Writes results, if the space and the owners of its partitions are still as they were."""

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        reachability: Reachability,
        planner: Planner,
        writer: RecordWriter,
        in_flight: InFlight,
        delivery: Delivery,
        reasons: WaitReasons,
        settled: SettledRecords,
        steps: Steps,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._settled = settled
        self._reachability = reachability
        self._planner = planner
        self._writer = writer
        self._in_flight = in_flight
        self._delivery = delivery
        self._reasons = reasons
        self._steps = steps
        self._tasks = tasks
        self._clock = clock
        self._without_switch: dict[Operation, None] = {}  # they wait for their host's switch
        # By space: operations that wait for it to be read, and the guards that did not hold.
        self._refreshing: dict[str, list[tuple[Operation, Sequence[Compare]]]] = {}
        catalogue.network_changed.subscribe(self._network_changed)
        fleet.switches_changed.subscribe(self._network_changed)
        fleet.configurator_changed.subscribe(lambda _: self._network_changed())

    def settle(self, operation: Operation) -> None:
        """Write the result of an operation, if it is (still) complete."""
        if operation.stage is not Stage.COMPLETE:
            return
        if operation.rollout.withdrawn:
            self._tasks.spawn(self._end_withdrawn(operation), f"end {operation.id}")
            return
        if self._reasons.postpone(operation, self.settle):
            return
        record = operation.record
        space = self._catalogue.spaces.get(record.space)
        if space is None:
            _log.error("%s: its space %r does not exist any more", record.id, record.space)
            call_after(self._tasks, _PAUSE, partial(self.settle, operation))
            return
        refused = operation.rollout.refusal is not None
        if not (refused or _in_all_versions(operation, space)) or not self._planner.still_routed(
            operation, space
        ):
            self._steps.restart(operation)
            return
        if self._told_again(operation) or self._waits_for_switch(operation):
            return
        settled = self._settlement(operation)
        key = operation.key
        value = encode(settled)
        on_result = partial(self._written, operation, settled)
        write = Write(key, operation.revision, [Put(key, value)], on_result, space)
        if settled.state in ("removed", "failed"):
            write.ops = [Delete(key)]
            if record.ttl is not None:
                write.ops.append(Delete(ttl_key(record.id)))
            write.leased = [Put(record_key(record.id, finished=True), value)]
        self._writer.write(write, min(_APART, _APART_EACH * (len(self._in_flight) - 1)))

    def forget(self, operation: Operation) -> None:
        """An operation is over."""
        self._without_switch.pop(operation, None)

    def _settlement(self, operation: Operation) -> Record:
        # The last write cannot know how long it takes: the record says as long as the one before.
        took = self._writer.took
        now = self._clock.monotonic()
        rollout = operation.rollout
        timing = timing_of(
            total=now + took - operation.received,
            indexed=operation.indexed,
            journaled=operation.write_ended - operation.write_began,
            decided=rollout.decided_us / 1e6,
            pushed=rollout.pushed_us / 1e6,
            committed=now - max(operation.last_done, operation.write_ended) + took,
        )
        return operation.settlement(self._clock.wall(), timing)

    # What an operation may have to wait for

    def _told_again(self, operation: Operation) -> bool:
        """Whether a former owner did something that the present one is told to do now."""
        outdated = self._delivery.outdated(operation)
        for name in outdated:
            operation.rollout.owner_changed(name, self._catalogue.epoch(name) or 0)
        if outdated:
            self._steps.resend(operation)
        return bool(outdated)

    def _waits_for_switch(self, operation: Operation) -> bool:
        """Whether the host's own switch is away, so that nothing was installed there."""
        rollout = operation.rollout
        if operation.action == "end" or operation.reindex or rollout.refusal:
            return False
        reason = self._reachability.switch_away(operation.host)
        waits = operation in self._without_switch
        if reason is None and waits and not self._reachability.network_applied():
            reason = rollout.waiting  # the switch is back, but does not have all entries yet
        if reason is None:
            if waits:
                del self._without_switch[operation]
                rollout.waiting = None
            return False
        self._without_switch[operation] = None
        if rollout.waiting != reason:
            rollout.waiting = reason
            self._reasons.store_soon(operation)
        return True

    def _network_changed(self) -> None:
        """A switch may be back, or have all its entries: settle what has waited for it."""
        self._settle_all(list(self._without_switch))

    def _settle_all(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self.settle(operation)

    # What has become of a result

    def _written(
        self, operation: Operation, settled: Record, write: Write, result: WriteResult
    ) -> None:
        if operation.ended:
            return
        if result is WriteResult.WRITTEN:
            document = write.document
            if settled.state == "active" and document is not None:
                self._settled.keep(settled.id, document, write.revision)
            else:
                self._settled.forget(settled.id)
            ending = Ending.FAILED if operation.rollout.refusal else Ending.DONE
            self._steps.end(operation, settled, ending)
        elif result is WriteResult.CHANGED:
            self._steps.record_changed(operation, write.found, self.settle)
        elif result is WriteResult.GUARDED:
            self._refresh(operation, write.guards)
        else:
            call_after(self._tasks, _PAUSE, partial(self.settle, operation))

    def _refresh(self, operation: Operation, guards: Sequence[Compare]) -> None:
        """Read what changed about a space, then settle all operations that wait for that."""
        name = operation.record.space
        waiting = self._refreshing.get(name)
        if waiting is not None:
            waiting.append((operation, guards))
            return
        self._refreshing[name] = [(operation, guards)]
        self._tasks.spawn(self._refresh_space(name), f"refresh {name}")

    async def _refresh_space(self, name: str) -> None:
        space = self._catalogue.spaces.get(name)
        try:
            if space:
                await self._catalogue.refresh(space)
        except StoreError as error:
            _log.warning("cannot read the space %s: %s", name, error)
            await asyncio.sleep(_PAUSE)
        space = self._catalogue.spaces.get(name)
        known = self._catalogue.guards(space) if space else ()
        later: list[Operation] = []
        for operation, guards in self._refreshing.pop(name):
            if guards == known:
                later.append(operation)  # the change is not known yet
            else:
                self.settle(operation)
        if later:
            call_after(self._tasks, _PAUSE, partial(self._settle_all, later))

    async def _end_withdrawn(self, operation: Operation) -> None:
        """End an operation whose record another operation has removed."""
        record = operation.record
        try:
            found = await self._writer.read(record_key(record.id, finished=True))
        except StoreError as error:
            _log.warning("cannot read how %s ended: %s", record.id, error)
            found = None
        if not operation.ended:
            now = decode_record(found.value) if found else record
            self._steps.end(operation, now, Ending.SUPERSEDED)


def _in_all_versions(operation: Operation, space: LoadedSpace) -> bool:
    """Whether an operation leads to regions in every version that its space has now."""
    record = operation.record
    if operation.action == "end":
        return True
    regions = record.next.regions if record.next else record.regions
    return all(version in regions for version in space.versions)
