"""The client of etcd: reads, transactions, watches and leases, under the installation's prefix."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from aetcd import rpc

from configurators.store.etcd import lease as leases
from configurators.store.etcd.connection import Access, EtcdConnection, Member, Metadata
from configurators.store.etcd.errors import (
    AnswerTooLarge,
    Compacted,
    LeaseGone,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from configurators.store.etcd.lease import Lease
from configurators.store.etcd.maintenance import Maintenance
from configurators.store.etcd.operations import (
    Compare,
    Delete,
    Get,
    KeyPage,
    Op,
    Put,
    Stored,
    TxnResult,
    absent,
    end_of,
    none_newer,
    range_request,
    stored,
    txn_request,
    txn_result,
    unchanged,
)
from configurators.store.etcd.watch import WatchBatch, WatchEvent, changes

__all__ = [
    "Access",
    "Compacted",
    "Compare",
    "Delete",
    "Etcd",
    "Get",
    "KeyPage",
    "Lease",
    "LeaseGone",
    "Op",
    "Put",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Stored",
    "TxnResult",
    "WatchBatch",
    "WatchEvent",
    "absent",
    "none_newer",
    "unchanged",
]

_PAGE = 2000  # keys that are read at once where all are asked for


class Etcd:
    """A client of etcd, for one event loop. Entering checks that etcd can be used.

    Every call ends within the time limit of `access`. It raises StoreUnavailable if no member
    answered (with `maybe_applied` if a write may have happened), StoreRefused if etcd rejects the
    client or the call, StoreFull if etcd has no space.
    """

    def __init__(self, access: Access, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.access = access
        self._monotonic = monotonic
        self._root = access.prefix
        self._skip = len(access.prefix.encode())
        self._open: EtcdConnection | None = None

    async def __aenter__(self) -> Self:
        self._open = EtcdConnection(self.access, self._monotonic)
        try:
            await self.check()
        except BaseException:
            await self._open.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connection.close()

    @property
    def _connection(self) -> EtcdConnection:
        if self._open is None:
            raise StoreUnavailable("enter the client (`async with Etcd(…)`) before you use it")
        return self._open

    async def check(self) -> None:
        """Return if etcd can be used now: a majority answers, and permits to read our keys."""
        await self.get("check")

    async def get(self, key: str) -> Stored | None:
        """A key with its value; None if it does not exist."""
        answer = await self._range(range_request((self._root + key).encode(), prefix=False))
        found = stored(self._skip, answer.kvs)
        return found[0] if found else None

    async def range(
        self,
        prefix: str,
        after: str | None = None,
        limit: int = 0,
        revision: int = 0,
        *,
        values: bool = True,
    ) -> KeyPage:
        """Keys that begin with the prefix, in order, beginning after the key `after`.

        At most `limit` of them if it is not 0; as they were at `revision` if it is not 0, else as
        they are now. Without `values`, etcd sends the keys alone, and every value is empty.
        Compacted if etcd no longer keeps that revision.
        """
        begin = (self._root + prefix).encode()
        request = range_request(begin, prefix=True)
        request.keys_only = not values
        if after is not None:
            request.key = (self._root + after).encode() + b"\0"
        request.revision = revision
        items: list[Stored] = []
        size = _PAGE
        while True:
            request.limit = min(size, limit - len(items)) if limit else size
            try:
                answer = await self._range(request)
            except AnswerTooLarge:
                if request.limit == 1:
                    raise
                size = max(1, request.limit // 2)
                continue
            items += stored(self._skip, answer.kvs)
            # Read all pages at the revision of the first one.
            request.revision = request.revision or answer.header.revision
            if not answer.more or len(items) == limit:
                return KeyPage(items, request.revision, answer.more)
            request.key = answer.kvs[-1].key + b"\0"

    async def count(self, prefix: str) -> int:
        """How many keys begin with the prefix."""
        request = range_request((self._root + prefix).encode(), prefix=True)
        request.count_only = True
        return int((await self._range(request)).count)

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        """Do `then` if all compares hold, else `otherwise`, in one step.

        The revision of the result is that of all keys that were put. No key may be put twice.
        LeaseGone if a key is put with a lease that has ended.
        """
        request = txn_request(self._root, compares, then, otherwise)

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.Txn(request, timeout=timeout, metadata=metadata)

        reads = all(isinstance(op, Get) for ops in (then, otherwise) for op in ops)
        return txn_result(self._skip, await self._connection.call(invoke, repeatable=reads))

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Store a value; returns its revision."""
        request = rpc.PutRequest(key=(self._root + key).encode(), value=value, lease=lease)

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.Put(request, timeout=timeout, metadata=metadata)

        answer = await self._connection.call(invoke, repeatable=False)
        return int(answer.header.revision)

    async def delete(self, key: str, prefix: bool = False) -> int:
        """Delete a key, or all keys that begin with it; returns how many there were."""
        begin = (self._root + key).encode()
        request = rpc.DeleteRangeRequest(key=begin, range_end=end_of(begin) if prefix else b"")

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.DeleteRange(request, timeout=timeout, metadata=metadata)

        answer = await self._connection.call(invoke, repeatable=False)
        return int(answer.deleted)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[WatchBatch, None]:
        """The changes under a prefix after a revision (that of a `KeyPage`, say), each change once.

        Never ends by itself, and reconnects after lost connections. Compacted if etcd no longer
        keeps the next changes; `mirror.follow` reads the prefix again then.
        """
        return changes(self._connection, prefix, after)

    def lease(self, ttl: int) -> Lease:
        """A lease of so many seconds, kept alive in `async with`, and revoked at its end."""
        return Lease(self._connection, ttl)

    async def grant(self, ttl: int) -> int:
        """The id of a new lease that ends after so many seconds; it is not kept alive."""
        return await leases.grant(self._connection, ttl)

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys; no effect if it has ended already."""
        await leases.revoke(self._connection, lease)

    @property
    def maintenance(self) -> Maintenance:
        """Maintenance of etcd as a whole."""
        return Maintenance(self._connection)

    async def _range(self, request: Any) -> Any:
        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.Range(request, timeout=timeout, metadata=metadata)

        return await self._connection.call(invoke, repeatable=True)
