"""Leases: kept alive in the background, with an event for when they are lost."""

import asyncio
import logging
from types import TracebackType
from typing import Any, Self

import grpc
from aetcd import rpc

from configurators.store.etcd.connection import EtcdConnection, Member, Metadata
from configurators.store.etcd.errors import LeaseGone, StoreError, StoreUnavailable

_log = logging.getLogger(__name__)


async def grant(connection: EtcdConnection, ttl: int) -> int:
    """The id of a new lease that ends after so many seconds."""

    async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
        request = rpc.LeaseGrantRequest(TTL=ttl)
        return await member.leases.LeaseGrant(request, timeout=timeout, metadata=metadata)

    # A lease too many does no harm: no key uses it, and it expires.
    return int((await connection.call(invoke, repeatable=True)).ID)


async def revoke(connection: EtcdConnection, lease: int) -> None:
    """End a lease and delete its keys; no effect if it has ended already."""

    async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
        request = rpc.LeaseRevokeRequest(ID=lease)
        return await member.leases.LeaseRevoke(request, timeout=timeout, metadata=metadata)

    try:
        await connection.call(invoke, repeatable=True)
    except LeaseGone:
        _log.debug("lease %x had ended before it was revoked", lease)


class Lease:
    """A lease that is kept alive while the block runs, and revoked at its end.

    `lost` is set when the lease was not renewed in time by our own clock, which is never later than
    etcd ends it; after that it is not renewed again. `alive` looks at the clock itself.
    """

    def __init__(self, connection: EtcdConnection, ttl: int) -> None:
        self.id = 0
        self.lost = asyncio.Event()
        self._connection = connection
        self._ttl = ttl
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether its keys exist for certain."""
        return not self.lost.is_set() and self._connection.monotonic() < self._until

    async def __aenter__(self) -> Self:
        began = self._connection.monotonic()
        self.id = await grant(self._connection, self._ttl)
        self._until = began + self._ttl
        self._task = asyncio.create_task(self._keep(), name=f"lease-{self.id:x}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.lost.set()
        try:
            await revoke(self._connection, self.id)
        except StoreError as trouble:
            _log.info("lease %x could not be revoked, it will expire: %s", self.id, trouble)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(
                min(self._ttl / 3, max(0.0, self._until - self._connection.monotonic()))
            )
            try:
                await self._renew()
            except StoreUnavailable as trouble:
                _log.warning("lease %x is not renewed yet: %s", self.id, trouble)
            except StoreError as trouble:
                _log.warning("lease %x is not renewed: %s", self.id, trouble)
                break
            if self._connection.monotonic() >= self._until:
                break
        self.lost.set()

    async def _renew(self) -> None:
        left = self._until - self._connection.monotonic()
        if left <= 0:
            return
        began = self._connection.monotonic()

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> int:
            nonlocal began
            began = self._connection.monotonic()
            call = member.leases.LeaseKeepAlive(timeout=timeout, metadata=metadata)
            try:
                await call.write(rpc.LeaseKeepAliveRequest(ID=self.id))
                answer = await call.read()
            finally:
                call.cancel()
            if answer is grpc.aio.EOF:
                raise StoreUnavailable("etcd ended the stream that renews the lease")
            if not answer.TTL:
                raise LeaseGone("the lease has expired or was revoked")
            return int(answer.TTL)

        ttl = await self._connection.call(invoke, repeatable=True, limit=left)
        self._until = began + ttl
