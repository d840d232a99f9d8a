"""The epochs of partitions as etcd has them: read at the start, then raised at the fence."""

import asyncio
import logging
from typing import Self

from configurators.store.etcd.client import Etcd
from configurators.store.keys import LOCKS, OWNERS
from configurators.store.locks import LockTable
from configurators.store.mirror import Snapshot, follow, read_snapshot
from sdn.driver import SwitchDriver
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)


class EpochFollower:
    """Raises the fence for each new owner. New owners do that themselves, too, but may be slow."""

    def __init__(self, etcd: Etcd, owners: Snapshot, locks: Snapshot) -> None:
        self._etcd = etcd
        self._owners_after = owners.revision
        self._locks_after = locks.revision
        self._locks = LockTable()
        self._locks.apply(locks)
        self.current = {change.name: change.revision for change in owners.changes}
        for partition, claim in self._locks.holders().items():
            self.current[partition] = max(claim.epoch, self.current.get(partition, 0))

    @classmethod
    async def read(cls, etcd: Etcd) -> Self:
        """Read all epochs now; `current` has them by partition."""
        owners = await read_snapshot(etcd, OWNERS)
        return cls(etcd, owners, await read_snapshot(etcd, LOCKS))

    async def run(self, driver: SwitchDriver) -> None:
        """Raise the fence of a driver for every owner that follows, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_owners(driver))
            group.create_task(self._follow_locks(driver))

    async def _follow_owners(self, driver: SwitchDriver) -> None:
        async for update in follow(self._etcd, OWNERS, self._owners_after):
            for change in update.changes:
                if change.value is not None:
                    await _raise(driver, change.name, change.revision)

    async def _follow_locks(self, driver: SwitchDriver) -> None:
        """The same for owners in mode `sea`: the processes that have locked a partition."""
        async for update in follow(self._etcd, LOCKS, self._locks_after):
            for partition in self._locks.apply(update):
                if holder := self._locks.holder(partition):
                    await _raise(driver, partition, holder.epoch)


async def _raise(driver: SwitchDriver, partition: str, epoch: int) -> None:
    try:
        await driver.raise_epoch(partition, epoch)
    except StaleEpoch:
        log.debug("the fence of %s is above %d already", partition, epoch)
