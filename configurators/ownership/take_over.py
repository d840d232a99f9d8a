"""Live configurators take over the partitions of configurators that are dead.

Every configurator computes the same new owner for each partition from the same list of live
configurators. Where their lists differ, the first one to write the owner key wins. Configurators
that are to leave take nothing over, unless no other one lives.
"""

import asyncio
import logging

from configurators.environment import Clock
from configurators.southbound.rendezvous import share
from configurators.state.wanted import read_count, staying
from configurators.store.etcd.client import Compare, Etcd, Put, StoreError, absent, unchanged
from configurators.store.keys import CONFIGURATORS, OWNERS, wanted_key
from configurators.store.mirror import Mirror
from dzflow.aio import wait_until_set

log = logging.getLogger(__name__)

_AT_ONCE = 50  # keys in one transaction
_TICK = 0.25  # seconds between checks while an owner is dead
_WANTED = wanted_key("configurators")


class Orphans:
    """Finds the partitions whose owners are dead, among what this configurator has seen. Pure.

    A configurator that goes has `grace` seconds to come back. One that was gone already when this
    one started has `first_grace` seconds, so that the first configurator to come up after a restart
    of all does not get every partition.
    """

    def __init__(self, me: str, grace: float, first_grace: float, now: float) -> None:
        self._me = me
        self._grace = grace
        self._until = now + first_grace
        self._owners: dict[str, tuple[str, int]] = {}
        self.wanted: int | None = None  # how many configurators there should be
        self._alive: set[str] = set()
        self._gone: dict[str, float] = {}  # since when each dead configurator is gone

    def owned(self, partition: str, owner: str | None, revision: int) -> None:
        """Note the owner of a partition; None if the partition no longer exists."""
        if owner is None:
            self._owners.pop(partition, None)
        else:
            self._owners[partition] = owner, revision

    def came(self, name: str) -> None:
        """Note that a configurator is alive."""
        self._alive.add(name)
        self._gone.pop(name, None)

    def went(self, name: str, now: float) -> None:
        """Note that a configurator is not alive."""
        self._alive.discard(name)
        self._gone.setdefault(name, now)

    @property
    def any(self) -> bool:
        """Whether there are partitions whose owner is not alive."""
        return any(owner not in self._alive for owner, _ in self._owners.values())

    def due(self, now: float) -> dict[str, tuple[str, int]]:
        """The partitions to take over now, each with its dead owner and the key's revision."""
        if self._me not in self._alive:
            return {}  # the other configurators consider this one dead, too
        orphans = {}
        for partition, (owner, revision) in self._owners.items():
            if owner not in self._alive:
                gone = self._gone.get(owner)
                if now >= (self._until if gone is None else gone + self._grace):
                    orphans[partition] = owner, revision
        mine = share(orphans, staying(self._alive, self.wanted), self._me)
        return {partition: orphans[partition] for partition in sorted(mine)}


class TakeOver:
    """Writes this configurator's id into owner keys of dead owners.

    The ownership follows the owner keys and does the rest.
    """

    def __init__(self, etcd: Etcd, me: str, grace: float, first_grace: float, clock: Clock) -> None:
        self._etcd = etcd
        self._me = me
        self._clock = clock
        self._orphans = Orphans(me, grace, first_grace, clock.monotonic())
        self._changed = asyncio.Event()
        self._configurators = Mirror(etcd, CONFIGURATORS, bytes, self._configurator_changed)
        self._owners = Mirror(etcd, OWNERS, bytes.decode, self._owner_changed)
        self._wanted = Mirror(etcd, _WANTED, bytes, self._wanted_changed)
        self._wanted_at = 0  # the revision of the count; 0: there is none

    async def run(self) -> None:
        """Take over whenever partitions are due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._configurators.run())
            group.create_task(self._owners.run())
            group.create_task(self._wanted.run())
            group.create_task(self._take_over_due())

    def _configurator_changed(self, name: str, process: bytes | None, _: int) -> None:
        if process is None:
            self._orphans.went(name, self._clock.monotonic())
        else:
            self._orphans.came(name)
        self._changed.set()

    def _owner_changed(self, partition: str, owner: str | None, revision: int) -> None:
        self._orphans.owned(partition, owner, revision)
        self._changed.set()

    def _wanted_changed(self, _: str, stored: bytes | None, revision: int) -> None:
        self._orphans.wanted = read_count(stored)
        self._wanted_at = 0 if stored is None else revision
        self._changed.set()

    async def _take_over_due(self) -> None:
        while True:
            # After a tick, an orphan may be due.
            await wait_until_set(self._changed, _TICK if self._orphans.any else None)
            self._changed.clear()
            due = list(self._orphans.due(self._clock.monotonic()).items())
            try:
                for at in range(0, len(due), _AT_ONCE):
                    await self._write_owner(dict(due[at : at + _AT_ONCE]))
            except StoreError as error:
                log.warning("partitions cannot be taken over: %s", error)
                await asyncio.sleep(_TICK)

    async def _write_owner(self, due: dict[str, tuple[str, int]]) -> None:
        compares: list[Compare] = [absent(CONFIGURATORS + o) for o in {o for o, _ in due.values()}]
        compares += [unchanged(OWNERS + name, revision) for name, (_, revision) in due.items()]
        # A configurator that is to leave by now must not get anything: it may be about to end.
        compares.append(unchanged(_WANTED, self._wanted_at))
        puts = [Put(OWNERS + name, self._me.encode()) for name in due]
        if (await self._etcd.transact(compares, puts)).succeeded:
            dead = ", ".join(sorted({owner for owner, _ in due.values()}))
            log.warning("%d partitions are taken over from %s", len(due), dead)
