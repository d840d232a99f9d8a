"""Asks for moves of partitions, and waits for what comes of them; runs on every monitor."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from configurators.environment import Clock
from configurators.store.documents import encode
from configurators.store.etcd.client import Compare, Etcd, Put, absent
from configurators.store.keys import PartitionName, move_key
from configurators.store.model import Move, MoveCause
from dispatcher.errors import Conflict, NotFound
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from monitor.moves.conditions import owner_may_change

_LONGEST = 300.0  # seconds that a caller waits at the most; moves have limits of their own


class _Waiter:
    """A caller that waits for the end of a move."""

    def __init__(self, partition: str, move: str) -> None:
        self.partition = partition
        self.move = move
        self.ended = asyncio.Event()
        self.why_failed = ""


class MoveRequests:
    """Stores moves in etcd, for the leading monitor to carry out."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        clock: Clock,
        new_id: Callable[[int], str],
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._fleet = fleet
        self._workers = workers
        self._clock = clock
        self._new_id = new_id
        self._waiting: set[_Waiter] = set()
        catalogue.move_changed.subscribe(self._move_changed)

    @property
    def moving(self) -> Collection[str]:
        """The partitions that are moving now."""
        return self._catalogue.moves.keys()

    async def move(
        self,
        partition: str,
        target: str,
        reason: str,
        cause: MoveCause = "operator",
        guards: Sequence[Compare] = (),
    ) -> bool:
        """Ask for a move, and wait until it has ended; False if that takes too long."""
        move = await self.ask(partition, target, reason, cause, guards)
        return await self.wait(partition, move, _LONGEST)

    async def ask(
        self,
        partition: str,
        target: str,
        text: str,
        cause: MoveCause = "operator",
        guards: Sequence[Compare] = (),
    ) -> Move:
        """Ask for a move to another configurator; `text` says why, `cause` who wants it.

        NotFound if there is no such partition, Conflict if it cannot move there now, or if one of
        the `guards` does not hold in etcd.
        """
        move, registered = self._new_move(partition, target, text, cause)
        key = move_key(partition)
        wanted_at = self._workers.wanted_at("configurators")
        may_change = owner_may_change(partition, move, registered, wanted_at)
        compares = [absent(key), *may_change, *guards]
        if not (await self._etcd.transact(compares, [Put(key, encode(move))])).succeeded:
            await self._catalogue.refresh_moves(partition)
            raise Conflict(
                f"partition {partition} or configurator {target} has changed meanwhile; look at"
                " GET /partitions and try again"
            )
        return move

    async def wait(self, partition: str, move: Move, seconds: float) -> bool:
        """Wait until a move has ended; False if the time is up. Conflict if it has failed."""
        waiter = _Waiter(partition, move.id)
        self._waiting.add(waiter)
        try:
            await self._catalogue.refresh_moves(partition)
            self._move_changed(partition)
            async with asyncio.timeout(seconds):
                await waiter.ended.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(waiter)
        if waiter.why_failed:
            raise Conflict(f"partition {partition} stays where it is: {waiter.why_failed}")
        if space := self._catalogue.spaces.numbered(PartitionName.parse(partition).space):
            await self._catalogue.refresh(space)
        owner = self._catalogue.owners.get(partition)
        if owner is None or owner[0] != move.target:
            text = f"belongs to {owner[0]}" if owner else "no longer exists"
            raise Conflict(f"partition {partition} {text}; GET /partitions shows the owners")
        return True

    def _new_move(
        self, partition: str, target: str, text: str, cause: MoveCause
    ) -> tuple[Move, int]:
        """The move, and the revision of the target's registration."""
        if self._catalogue.partitions_locked:
            raise Conflict(
                "in mode sea every configurator works on every partition: there is nothing to move"
            )
        owner = self._catalogue.owners.get(partition)
        if owner is None:
            raise NotFound(
                f"there is no partition {partition[:64]!r}; GET /partitions lists all partitions"
            )
        if target not in self._fleet.configurators.processes:
            raise Conflict(
                f"there is no live configurator {target[:64]!r}; GET /configurators lists all"
            )
        source, epoch = owner
        if source == target:
            raise Conflict(f"partition {partition} belongs to {target} already")
        if source not in self._fleet.configurators.processes:
            raise Conflict(
                f"the owner {source} of partition {partition} is not alive; another configurator"
                " takes the partition over by itself"
            )
        alive = self._fleet.configurators.processes
        if target not in self._workers.staying("configurators", alive):
            raise Conflict(
                f"configurator {target} is to leave; GET /configurators shows which ones stay"
            )
        if known := self._catalogue.moves.get(partition):
            raise Conflict(f"partition {partition} is moving to {known[0].target} already")
        space = self._catalogue.spaces.numbered(PartitionName.parse(partition).space)
        if space is None or space.doc.by:
            raise Conflict(
                "the index of the partition's space is being changed; try again when that is done"
            )
        plan = self._catalogue.plans.get(space.number)
        if plan and plan[0].phase in ("cutting", "settling"):
            raise Conflict(
                f"the partition map of {space.name!r} is being changed; try again when that is done"
            )
        now = self._clock.wall()
        move = Move(self._new_id(8), source, epoch, target, "asked", text, now, cause)
        return move, self._fleet.configurators.revision(target)

    def _move_changed(self, partition: str) -> None:
        known = self._catalogue.moves.get(partition)
        for waiter in self._waiting:
            if waiter.partition != partition:
                continue
            if known is None or known[0].id != waiter.move:
                waiter.ended.set()
            elif known[0].phase == "failed":
                waiter.why_failed = known[0].text
