"""A process makes itself known in etcd, for as long as it lives."""

import asyncio
import logging

from configurators.store.documents import encode
from configurators.store.etcd.client import (
    Compare,
    Etcd,
    Put,
    StoreError,
    StoreUnavailable,
    absent,
    unchanged,
)
from configurators.store.model import Process
from dzflow.errors import DzflowError

log = logging.getLogger(__name__)

TTL = 10  # seconds after which a process that gives no sign of life is taken for dead
_RETRY = 0.5


class Superseded(DzflowError):
    """Another process has registered under the same id: it does the work from now on."""


class Registration:
    """The leased key of a process; `known` is set while it stands, since `revision`."""

    def __init__(self, etcd: Etcd, key: str, process: Process, ttl: int = TTL) -> None:
        self.known = asyncio.Event()
        self.revision = 0
        self._etcd = etcd
        self._key = key
        self._value = encode(process)
        self._ttl = ttl
        self._lease = 0

    def stands(self) -> Compare:
        """What holds in etcd for as long as nobody takes this process for dead.

        StoreUnavailable if it was never registered.
        """
        if not self.revision:  # it would mean that there is no such key
            raise StoreUnavailable(f"{self._key} is not registered yet")
        return unchanged(self._key, self.revision)

    async def keep(self) -> None:
        """Stand registered until cancelled, again after etcd was away.

        The first time it replaces whoever has the id; Superseded if somebody does later.
        """
        first = True
        while True:
            try:
                async with self._etcd.lease(self._ttl) as lease:
                    self._lease = lease.id
                    await self._put(anyway=first)
                    first = False
                    self.known.set()
                    await lease.lost.wait()
            except StoreError as error:
                log.warning("%s is not registered: %s", self._key, error)
            finally:
                self.known.clear()
            await asyncio.sleep(_RETRY)

    async def confirm(self) -> None:
        """Wait until it is certain that the id is ours; Superseded if it is another's."""
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
        """Store the key, unless it is another's."""
        while True:
            stored = None if anyway else await self._etcd.get(self._key)
            if stored and stored.value != self._value:
                raise Superseded(f"another process is {self._key} now; this one stops")
            compare = unchanged(self._key, stored.revision) if stored else absent(self._key)
            put = Put(self._key, self._value, self._lease)
            result = await self._etcd.transact([] if anyway else [compare], [put])
            if result.succeeded:
                self.revision = result.revision
                return
