"""Bounds what is kept of finished records and idempotency keys, by count and by bytes.

Every dispatcher lists the groups that it has written (see `configurators/store/retention.py`). One
of them, the first in an order that all agree upon, removes the oldest groups of all dispatchers,
those of dead ones, too. Two of them may do so at the same time, for a moment; that does no harm.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from configurators.environment import Clock
from configurators.store.documents import decode_group, encode
from configurators.store.etcd.client import (
    Etcd,
    LeaseGone,
    Put,
    StoreError,
    StoreFull,
    absent,
    unchanged,
)
from configurators.store.keys import FINISHED, GROUPS, KEYS, REMOVED_UNTIL, group_key
from configurators.store.mirror import Mirror
from configurators.store.retention import Bound, Group, GroupKind, Kept, kept, removable, surplus
from configurators.store.upkeep import SharedLeases
from dispatcher.knowledge.siblings import Siblings
from dispatcher.metrics import Metrics

_log = logging.getLogger(__name__)

_EVERY = 1.0  # seconds
_CLOSE = 3.0  # seconds
_CLOCKS_DIFFER = 5.0  # seconds, between dispatchers
_DUTY = "retention"


class Retention:
    """Lists the groups of this dispatcher, and removes those that are too many of all."""

    def __init__(
        self,
        etcd: Etcd,
        siblings: Siblings,
        leases: Sequence[SharedLeases],
        bounds: Mapping[GroupKind, Bound],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._siblings = siblings
        self._leases = leases
        self._bounds = bounds
        self._metrics = metrics
        self._clock = clock
        self._mirror: Mirror[Group] = Mirror(etcd, GROUPS, decode_group, lambda *_: None)
        self._unannounced = False  # whether etcd has no time of removals, because it was full

    async def start(self) -> None:
        """Read which groups there are, and keep that up to date."""
        await self._mirror.start()
        try:
            await self.announce()
        except StoreFull:
            self._unannounced = True

    async def close(self) -> None:
        """List the last groups, so that other dispatchers know them."""
        await self._mirror.stop()
        try:
            async with asyncio.timeout(_CLOSE):
                await self._list_groups(last=True)
        except (StoreError, TimeoutError) as error:
            _log.warning("the last finished records are removed only when they expire: %s", error)

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return self._mirror.tasks()

    async def run(self) -> None:
        """Keep the bounds until cancelled."""
        while True:
            try:
                await self.attend()
            except StoreError as error:
                _log.warning("finished records and old keys are not removed yet: %s", error)
            await asyncio.sleep(_EVERY)

    async def attend(self) -> None:
        """List new groups; if this dispatcher is the one to do so, remove what is too much."""
        if self._unannounced:
            await self.announce()
        await self._list_groups()
        if self.removes_for_all:
            now = self._clock.wall()
            for kind, bound in self._bounds.items():
                await self.remove(surplus(self.groups(kind), bound, now))

    @property
    def removes_for_all(self) -> bool:
        """Whether this dispatcher is the one that removes groups."""
        return self._siblings.is_first_for(_DUTY)

    def groups(self, kind: GroupKind) -> list[Group]:
        """All groups of a kind, the oldest first."""
        return removable(
            (group for group in self._mirror.values.values() if group.kind == kind),
            floor=0.0,
            now=float("inf"),
        )

    def removable(self, kind: GroupKind) -> list[Group]:
        """The groups of a kind that are old enough to be removed, the oldest first."""
        return removable(self.groups(kind), self._bounds[kind].floor, self._clock.wall())

    def kept(self, kind: GroupKind) -> Kept:
        """How much there is of a kind, without what was written last."""
        return kept(self.groups(kind))

    async def remove(self, groups: Sequence[Group]) -> None:
        """Remove groups with all their keys."""
        finished = [group.closed for group in groups if group.kind == "finished"]
        if finished:
            await self._announce_if_possible(max(finished))
        for group in groups:
            await self._etcd.revoke(group.lease)
            self._metrics.removed_early[group.kind] += group.keys

    async def remove_all_finished(self) -> None:
        """Remove all finished records, those that are in no group, too."""
        await self._announce_if_possible(self._clock.wall())
        await self._etcd.delete(FINISHED, prefix=True)

    async def announce(self, until: float = 0.0) -> None:
        """Store up to which time finished records have been removed; StoreFull.

        If etcd has no such time, all records up to now may have been removed while it was full. But
        if there are no idempotency keys, the service is new, or no call can be repeated.
        """
        while True:
            found = await self._etcd.get(REMOVED_UNTIL)
            if found is None and (await self._etcd.range(KEYS, limit=1)).items:
                until = max(until, self._clock.wall())
            time = until + _CLOCKS_DIFFER if until else 0.0
            if found and time <= float(found.value):
                break
            guard = unchanged(REMOVED_UNTIL, found.revision) if found else absent(REMOVED_UNTIL)
            put = Put(REMOVED_UNTIL, str(time).encode())
            if (await self._etcd.transact([guard], [put])).succeeded:
                break
        self._unannounced = False

    async def _announce_if_possible(self, until: float) -> None:
        try:
            await self.announce(until)
        except StoreFull:
            # A deletion is possible. It outlives this process, as a note in memory would not.
            await self._etcd.delete(REMOVED_UNTIL)
            self._unannounced = True

    async def _list_groups(self, last: bool = False) -> None:
        for leases in self._leases:
            groups = leases.take_closed(last)
            while groups:
                group = groups[0]
                try:
                    await self._etcd.put(group_key(group.lease), encode(group), group.lease)
                except LeaseGone:
                    _log.debug("the group %x has expired before it was listed", group.lease)
                except BaseException:
                    leases.give_back(groups)
                    raise
                groups = groups[1:]
