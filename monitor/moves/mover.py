"""Drives the moves of partitions that stand in etcd; runs on the leading monitor."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from configurators.environment import Clock
from configurators.store.documents import encode
from configurators.store.etcd.client import Compare, Delete, Etcd, Op, Put, StoreError, unchanged
from configurators.store.keys import PartitionName, move_key, owner_key
from configurators.store.model import Move, MovePhase
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from dzflow.aio import wait_until_set
from monitor.moves.conditions import owner_may_change
from monitor.moves.decision import Facts, MoveDecision, MoveLimits, Step, decide
from monitor.moves.ends import MoveEnded

log = logging.getLogger(__name__)

_TICK = 0.25  # seconds between looks at the limits while there are moves
_PAUSE = 0.5  # before the next attempt when etcd does not answer

_PHASES: dict[Step, MovePhase] = {
    Step.COPY: "copying",
    Step.HAND_OVER: "handing over",
    Step.CHANGE_OWNER: "moved",
    Step.FAIL: "failed",
}


class _Progress(Struct):
    """What this monitor remembers of a move."""

    move: str
    revision: int  # of the document when the phase began
    since: float


class Mover:
    """Takes every move from step to step; `on_end` is called with each one that has ended."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        clock: Clock,
        on_end: Callable[[MoveEnded], None],
        limits: MoveLimits | None = None,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._fleet = fleet
        self._workers = workers
        self._clock = clock
        self._on_end = on_end
        self._limits = limits or MoveLimits()
        self._progress: dict[str, _Progress] = {}
        self._changed = asyncio.Event()
        catalogue.move_changed.subscribe(lambda _: self._changed.set())
        catalogue.owner_changed.subscribe(lambda *_: self._changed.set())
        fleet.configurator_changed.subscribe(lambda _: self._changed.set())
        workers.changed.subscribe(self._changed.set)

    async def run(self, lead: Compare) -> None:
        """Drive all moves until cancelled; every write compares `lead`."""
        self._progress.clear()
        while True:
            self._changed.clear()
            failed = False
            for partition, (move, revision) in list(self._catalogue.moves.items()):
                failed |= await self._fails(partition, move, revision, lead)
            if failed:
                await asyncio.sleep(_PAUSE)
                continue
            await wait_until_set(self._changed, _TICK if self._catalogue.moves else None)

    async def _fails(self, partition: str, move: Move, revision: int, lead: Compare) -> bool:
        """Whether work on one move fails: that must not hold up other moves, or plans."""
        try:
            await self._advance(partition, move, revision, lead)
        except StoreError as error:
            log.warning("the move of partition %s waits: %s", partition, error)
        except Exception:
            log.exception("the move of partition %s has failed, and is tried again", partition)
        else:
            return False
        return True

    async def _advance(self, partition: str, move: Move, revision: int, lead: Compare) -> None:
        now = self._clock.monotonic()
        progress = self._progress.get(partition)
        if progress is None or progress.move != move.id or progress.revision != revision:
            progress = self._progress[partition] = _Progress(move.id, revision, now)
        facts = self._facts(partition, move, now - progress.since)
        decision = decide(move, facts, self._limits)
        if decision.step is Step.WAIT:
            return
        ops, compares = self._write(partition, move, decision)
        compares = [lead, unchanged(move_key(partition), revision), *compares]
        if (await self._etcd.transact(compares, ops)).succeeded:
            if decision.step is Step.END:
                self._ended(partition, move)
            elif decision.step is Step.FAIL:
                log.warning("partition %s does not move: %s", partition, decision.text)
        await self._catalogue.refresh_moves(partition)

    def _write(
        self, partition: str, move: Move, decision: MoveDecision
    ) -> tuple[Sequence[Op], Sequence[Compare]]:
        """The operations of a step, and what must hold for it."""
        key = move_key(partition)
        if decision.step is Step.END:
            return [Delete(key)], []
        text = decision.text or move.text
        put = Put(key, encode(replace(move, phase=_PHASES[decision.step], text=text)))
        if decision.step is not Step.CHANGE_OWNER:
            return [put], []
        registered = self._fleet.configurators.revision(move.target)
        wanted_at = self._workers.wanted_at("configurators")
        change = Put(owner_key(partition), move.target.encode())
        return [change, put], owner_may_change(partition, move, registered, wanted_at)

    def _facts(self, partition: str, move: Move, lasted: float) -> Facts:
        loads = self._fleet.loads
        target, source = loads.get(move.target), loads.get(move.source)
        copies = (copy for copy in (target.copies if target else ()) if copy.partition == partition)
        at_target = (p for p in (target.partitions if target else ()) if p.partition == partition)
        at_source = (p for p in (source.partitions if source else ()) if p.partition == partition)
        ready = next((p.epoch for p in at_target if p.state == "ready"), None)
        alive = frozenset(self._fleet.configurators.processes)
        name = PartitionName.parse(partition)
        view = self._catalogue.spaces.version(name)
        return Facts(
            self._catalogue.owners.get(partition),
            view is not None and name.leaf in view.leaves,
            alive,
            self._workers.staying("configurators", alive),
            next(copies, None),
            ready,
            next((p.reason for p in at_source), None),
            lasted,
        )

    def _ended(self, partition: str, move: Move) -> None:
        del self._progress[partition]
        log.info("the move of partition %s has ended: %s", partition, move.phase)
        self._on_end(MoveEnded(partition, move))
