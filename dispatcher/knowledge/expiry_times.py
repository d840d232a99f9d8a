"""When records with a ttl expire, kept up to date from etcd."""

import asyncio

from configurators.environment import Clock
from configurators.store.etcd.client import Etcd, Put, unchanged
from configurators.store.keys import TTL, record_key, ttl_key
from configurators.store.mirror import Mirror
from configurators.store.model import Record
from dispatcher.knowledge.signals import Signal


class ExpiryTimes:
    """The expiry times of all records that have one, in seconds since the epoch."""

    def __init__(self, etcd: Etcd, clock: Clock) -> None:
        self.changed: Signal[str, float] = Signal()
        """Emitted with the record's id and its new time."""
        self.gone: Signal[str] = Signal()
        """Emitted with the id of a record that no longer has a time."""
        self._etcd = etcd
        self._clock = clock
        self._times: dict[str, tuple[float, int]] = {}  # with the revision of the key
        self._mirror = Mirror(etcd, TTL, float, self._time_changed)

    async def start(self) -> None:
        """Read all times, and keep them up to date."""
        await self._mirror.start()

    async def stop(self) -> None:
        """Stop keeping them up to date."""
        await self._mirror.stop()

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return self._mirror.tasks()

    def get(self, id: str) -> float | None:
        """When a record expires, as far as is known here."""
        known = self._times.get(id)
        return known[0] if known else None

    def revision(self, id: str) -> int:
        """The revision of a record's time in etcd; 0 if none is known."""
        known = self._times.get(id)
        return known[1] if known else 0

    async def renew(self, record: Record, revision: int) -> bool:
        """Let a record live for another ttl from now; False if it has changed since `revision`."""
        assert record.ttl is not None
        until = self._clock.wall() + record.ttl
        put = Put(ttl_key(record.id), str(until).encode())
        result = await self._etcd.transact([unchanged(record_key(record.id), revision)], [put])
        if result.succeeded:
            self._time_changed(record.id, until, result.revision)
        return result.succeeded

    def _time_changed(self, id: str, until: float | None, revision: int) -> None:
        if until is None:
            self._times.pop(id, None)
            self.gone.emit(id)
            return
        known = self._times.get(id)
        if known and known[1] >= revision:
            return
        self._times[id] = until, revision
        self.changed.emit(id, until)
