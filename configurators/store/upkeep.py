"""Keeps etcd from filling up: shared leases for keys that expire, and maintenance calls.

At thousands of requests a second, a lease for each finished record would be too many: records that
finish one after the other share one. A lease has a bounded number of keys, because etcd deletes
them all in one step when the lease ends, and does nothing else meanwhile.
"""

import asyncio
import time
from collections.abc import Callable

from configurators.store.etcd.client import Etcd, StoreUnavailable
from configurators.store.retention import Group, GroupKind
from configurators.store.room import Room

_GROUP_KEYS = 2_000
_GROUP_BYTES = 4 << 20


class SharedLeases:
    """Leases for keys that expire some time after they were written.

    A key lives for at least `retention` seconds, and at most for `rotation` seconds longer, unless
    its lease is revoked. The keys of one lease are a group; `take_closed` has those that get no
    more keys.
    """

    def __init__(
        self,
        etcd: Etcd,
        kind: GroupKind,
        retention: float,
        rotation: float = 60.0,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        group_keys: int = _GROUP_KEYS,
    ) -> None:
        self._etcd = etcd
        self._kind: GroupKind = kind
        self._ttl = max(1, round(retention + rotation))
        self._rotation = rotation
        self._monotonic = monotonic
        self._wall = wall
        self._group_keys = group_keys
        self._lease = 0
        self._until = 0.0
        self._keys = self._bytes = 0
        self._closed: list[Group] = []
        self._granting = asyncio.Lock()

    async def current(self, keys: int = 1, size: int = 0) -> int:
        """The lease for so many keys, of so many bytes, that are written now.

        A call to etcd once for each group.
        """
        if self._is_over():
            async with self._granting:
                began = self._monotonic()
                if self._is_over():
                    lease = await self._etcd.grant(self._ttl)
                    self._close()
                    self._lease, self._until = lease, began + self._rotation
        self._keys += keys
        self._bytes += size
        return self._lease

    def forget(self) -> None:
        """Take a new lease next time, because etcd says that this one has ended."""
        self._lease = self._keys = self._bytes = 0
        self._until = 0.0

    def take_closed(self, last: bool = False) -> list[Group]:
        """The groups that have been closed since the last call; with `last`, the open one, too."""
        if last or self._monotonic() >= self._until:
            self._close()
        closed, self._closed = self._closed, []
        return closed

    def give_back(self, groups: list[Group]) -> None:
        """Groups that `take_closed` is to return again."""
        self._closed = groups + self._closed

    def _is_over(self) -> bool:
        return (
            self._monotonic() >= self._until
            or self._keys >= self._group_keys
            or self._bytes >= _GROUP_BYTES
        )

    def _close(self) -> None:
        if self._lease and self._keys:
            group = Group(self._kind, self._lease, self._wall(), self._keys, self._bytes)
            self._closed.append(group)
        self.forget()


async def read_room(etcd: Etcd) -> Room:
    """How full etcd is; StoreUnavailable if no member says so."""
    states = [state for state in (await etcd.maintenance.states()).values() if state is not None]
    if not states:
        raise StoreUnavailable("no member of etcd says how full it is")
    return Room(
        size=max(state.size for state in states),
        in_use=max(state.in_use for state in states),
        full=any(state.full for state in states),
    )
