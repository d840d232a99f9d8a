"""Partitions whose configurator is dead are taken over by those that are alive.

Which is whose, all who see the same agree upon; where they do not, the first to store it wins.
"""

import asyncio
import logging
import time

from configurators.southbound.rendezvous import share
from configurators.store.etcd.client import Compare, Etcd, Put, StoreError, absent, unchanged
from configurators.store.keys import CONFIGURATORS, OWNERS
from configurators.store.mirror import Mirror

log = logging.getLogger(__name__)

_AT_ONCE = 50  # keys in one transaction
_TICK = 0.25  # seconds between looks while somebody is gone


class Orphans:
    """Who owns what and who is alive, as far as this configurator has seen. Pure.

    One that goes has `grace` seconds to come back; those that were gone when this one started have
    `first_grace`, so that a restart of all does not give everything to the first.
    """

    def __init__(self, me: str, grace: float, first_grace: float, now: float) -> None:
        self._me = me
        self._grace = grace
        self._until = now + first_grace
        self._owners: dict[str, tuple[str, int]] = {}
        self._alive: set[str] = set()
        self._gone: dict[str, float] = {}  # since when

    def owned(self, partition: str, owner: str | None, revision: int) -> None:
        """A partition has an owner, or (None) is no more."""
        if owner is None:
            self._owners.pop(partition, None)
        else:
            self._owners[partition] = owner, revision

    def came(self, name: str) -> None:
        """A configurator is alive."""
        self._alive.add(name)
        self._gone.pop(name, None)

    def went(self, name: str, now: float) -> None:
        """A configurator is not alive (any more)."""
        self._alive.discard(name)
        self._gone.setdefault(name, now)

    @property
    def any(self) -> bool:
        """Whether there are partitions whose owner is not alive."""
        return any(owner not in self._alive for owner, _ in self._owners.values())

    def due(self, now: float) -> dict[str, tuple[str, int]]:
        """What this one should take over now: partitions with their dead owner and revision."""
        if self._me not in self._alive:
            return {}  # others take this one for dead, too
        orphans = {}
        for partition, (owner, revision) in self._owners.items():
            if owner not in self._alive:
                gone = self._gone.get(owner)
                if now >= (self._until if gone is None else gone + self._grace):
                    orphans[partition] = owner, revision
        mine = share(orphans, self._alive, self._me)
        return {partition: orphans[partition] for partition in sorted(mine)}


class TakeOver:
    """Puts this configurator's id where the owner is dead; whoever follows owners does the rest."""

    def __init__(self, etcd: Etcd, me: str, grace: float, first_grace: float) -> None:
        self._etcd = etcd
        self._me = me
        self._orphans = Orphans(me, grace, first_grace, time.monotonic())
        self._changed = asyncio.Event()
        self._configurators = Mirror(etcd, CONFIGURATORS, bytes, self._configurator_changed)
        self._owners = Mirror(etcd, OWNERS, bytes.decode, self._owner_changed)

    async def run(self) -> None:
        """Look, and take over, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._configurators.run())
            group.create_task(self._owners.run())
            group.create_task(self._look())

    def _configurator_changed(self, name: str, process: bytes | None, _: int) -> None:
        if process is None:
            self._orphans.went(name, time.monotonic())
        else:
            self._orphans.came(name)
        self._changed.set()

    def _owner_changed(self, partition: str, owner: str | None, revision: int) -> None:
        self._orphans.owned(partition, owner, revision)
        self._changed.set()

    async def _look(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_TICK if self._orphans.any else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            due = list(self._orphans.due(time.monotonic()).items())
            try:
                for at in range(0, len(due), _AT_ONCE):
                    await self._take_over(dict(due[at : at + _AT_ONCE]))
            except StoreError as error:
                log.warning("partitions cannot be taken over: %s", error)
                await asyncio.sleep(_TICK)

    async def _take_over(self, due: dict[str, tuple[str, int]]) -> None:
        compares: list[Compare] = [absent(CONFIGURATORS + o) for o in {o for o, _ in due.values()}]
        compares += [unchanged(OWNERS + name, revision) for name, (_, revision) in due.items()]
        puts = [Put(OWNERS + name, self._me.encode()) for name in due]
        if (await self._etcd.transact(compares, puts)).succeeded:
            dead = ", ".join(sorted({owner for owner, _ in due.values()}))
            log.warning("%d partitions are taken over from %s", len(due), dead)
