"""The registration of a process in etcd, for as long as it lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from configurators.store.documents import encode
from configurators.store.etcd.client import (
    Compare,
    Etcd,
    Lease,
    Put,
    StoreError,
    StoreUnavailable,
    absent,
    unchanged,
)
from configurators.store.model import Process
from dzflow.aio import wait_for_any
from dzflow.errors import DzflowError

log = logging.getLogger(__name__)

TTL = 10  # seconds without a sign of life after which others take a process for dead
_RETRY = 0.5


class Superseded(DzflowError):
    """Another process has registered with the same id, and does the work from now on."""


class Registration:
    """The leased key of a process; `known` is set while it is registered, since `revision`.

    `on_lost` is awaited after the lease was lost, before the process registers again. The first
    registration takes the key over from another process, if it may `replace` it.
    """

    def __init__(
        self,
        etcd: Etcd,
        key: str,
        process: Process,
        ttl: int = TTL,
        on_lost: Callable[[], Awaitable[None]] | None = None,
        *,
        replace: bool = True,
    ) -> None:
        self.known = asyncio.Event()
        self.revision = 0
        self._etcd = etcd
        self._key = key
        self._process = process
        self._value = encode(process)
        self._ttl = ttl
        self._on_lost = on_lost
        self._replace = replace
        self._lease: Lease | None = None
        self._replaced_at = 0  # the revision of another process's registration with this id
        self._replaced = asyncio.Event()

    @property
    def certain(self) -> bool:
        """Whether the process is registered for certain at this moment, by its own clock."""
        return self._lease is not None and self._lease.alive

    def stands(self) -> Compare:
        """The comparison that holds in etcd for as long as the registration does.

        StoreUnavailable if the process was never registered.
        """
        if not self.revision:  # it would mean that there is no such key
            raise StoreUnavailable(f"{self._key} is not registered yet")
        return unchanged(self._key, self.revision)

    async def keep(self) -> None:
        """Stay registered until cancelled; register again after etcd was away.

        The first registration replaces that of an older process with the same id, or leaves it
        alone (Superseded). Superseded if another process registers with it later.
        """
        first = True
        while True:
            try:
                async with self._etcd.lease(self._ttl) as lease:
                    self._lease = lease
                    await self._put(anyway=first and self._replace)
                    first = False
                    self.known.set()
                    await self._wait(lease)
                log.warning("%s is no longer registered: its lease was not renewed", self._key)
            except StoreError as error:
                log.warning("%s is not registered: %s", self._key, error)
            finally:
                self.known.clear()
            if self._on_lost and not first:
                await self._on_lost()
            await asyncio.sleep(_RETRY)

    def observe(self, process: Process, revision: int) -> bool:
        """Note what etcd has under the key; `keep` ends if that is another, newer process.

        Returns whether it is this process.
        """
        if process == self._process:
            return True
        self._replaced_at = max(self._replaced_at, revision)
        if self._replaced_at > self.revision > 0:
            self._replaced.set()
        return False

    async def put(self, key: str, value: bytes) -> None:
        """Store another key of this process, which disappears with the registration.

        StoreUnavailable if the process is not registered now, or another one has its id.
        """
        compare, put = self.stands(), Put(key, value, self._lease_id)
        if not (await self._etcd.transact([compare], [put])).succeeded:
            raise StoreUnavailable(f"{key} is not stored: {self._key} has just been changed")

    async def confirm(self) -> None:
        """Wait until it is certain that the id is this process's; Superseded if it is not."""
        while True:
            await self.known.wait()
            try:
                await self._put()
            except StoreError as error:
                log.warning("%s cannot be confirmed: %s", self._key, error)
                await asyncio.sleep(_RETRY)
            else:
                return

    async def _put(self, anyway: bool = False) -> None:
        """Store the key, unless another process has it."""
        while True:
            stored = None if anyway else await self._etcd.get(self._key)
            if stored and stored.value != self._value:
                raise self._superseded()
            compare = unchanged(self._key, stored.revision) if stored else absent(self._key)
            put = Put(self._key, self._value, self._lease_id)
            result = await self._etcd.transact([] if anyway else [compare], [put])
            if result.succeeded:
                self.revision = result.revision
                if self._replaced_at > self.revision:
                    raise self._superseded()
                return

    @property
    def _lease_id(self) -> int:
        return self._lease.id if self._lease else 0

    async def _wait(self, lease: Lease) -> None:
        """Wait until the lease is lost; Superseded if another process has registered."""
        await wait_for_any(lease.lost, self._replaced)
        if self._replaced.is_set():
            raise self._superseded()

    def _superseded(self) -> Superseded:
        return Superseded(f"another process is {self._key} now; this one stops")
