"""The client of etcd: reads, transactions, watches and leases, under the installation's prefix."""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Self

from aetcd import rpc

from configurators.store.etcd import lease as leases
from configurators.store.etcd.connection import Access, Connection, Member, Metadata
from configurators.store.etcd.errors import (
    Compacted,
    LeaseGone,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TooLarge,
)
from configurators.store.etcd.lease import Lease
from configurators.store.etcd.maintenance import Maintenance
from configurators.store.etcd.operations import (
    Compare,
    Delete,
    Get,
    Op,
    Page,
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
from configurators.store.etcd.watch import Change, WatchBatch, changes

__all__ = [
    "Access",
    "Change",
    "Compacted",
    "Compare",
    "Delete",
    "Etcd",
    "Get",
    "Lease",
    "LeaseGone",
    "Op",
    "Page",
    "Put",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Stored",
    "TxnResult",
    "WatchBatch",
    "absent",
    "none_newer",
    "unchanged",
]

_PAGE = 2000  # keys that are read at once where all are asked for


class Etcd:
    """A client of etcd, for one event loop. Entering checks that etcd can be used.

    Every call ends within the access's time limit. It raises StoreUnavailable if no member
    answered (with `maybe_applied` if a write may have happened all the same), StoreRefused if etcd
    does not accept us or what was asked, StoreFull if it has no room.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._root = access.prefix
        self._skip = len(access.prefix.encode())
        self._open: Connection | None = None

    async def __aenter__(self) -> Self:
        self._open = Connection(self.access)
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
    def _connection(self) -> Connection:
        if self._open is None:
            raise StoreUnavailable("enter the client (`async with Etcd(…)`) before it is used")
        return self._open

    async def check(self) -> None:
        """Return if etcd can be used now: a majority answers, and we may read our keys."""
        await self.get("check")

    async def get(self, key: str) -> Stored | None:
        """The key's value, None if it has none."""
        answer = await self._range(range_request((self._root + key).encode(), prefix=False))
        found = stored(self._skip, answer.kvs)
        return found[0] if found else None

    async def range(
        self, prefix: str, after: str | None = None, limit: int = 0, revision: int = 0
    ) -> Page:
        """Keys that begin with the prefix, in order, from just behind the key `after` on.

        At most `limit` of them if it is not 0; as they were at `revision` if it is not 0, else as
        they are now. Compacted if etcd no longer keeps that.
        """
        begin = (self._root + prefix).encode()
        request = range_request(begin, prefix=True)
        if after is not None:
            request.key = (self._root + after).encode() + b"\0"
        request.revision = revision
        items: list[Stored] = []
        size = _PAGE
        while True:
            request.limit = min(size, limit - len(items)) if limit else size
            try:
                answer = await self._range(request)
            except TooLarge:
                if request.limit == 1:
                    raise
                size = max(1, request.limit // 2)
                continue
            items += stored(self._skip, answer.kvs)
            # All pages as of the first one's revision.
            request.revision = request.revision or answer.header.revision
            if not answer.more or len(items) == limit:
                return Page(items, request.revision, answer.more)
            request.key = answer.kvs[-1].key + b"\0"

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        """If all compares hold, do `then`, if not, `otherwise`, in one step.

        The result's revision is that of all keys that were put. No key may be put twice. LeaseGone
        if a key hangs on a lease that has ended.
        """
        request = txn_request(self._root, compares, then, otherwise)

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.Txn(request, timeout=timeout, metadata=metadata)

        reads = all(isinstance(op, Get) for ops in (then, otherwise) for op in ops)
        return txn_result(self._skip, await self._connection.call(invoke, repeatable=reads))

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Store a value; the revision that it got."""
        request = rpc.PutRequest(key=(self._root + key).encode(), value=value, lease=lease)

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.Put(request, timeout=timeout, metadata=metadata)

        answer = await self._connection.call(invoke, repeatable=False)
        return int(answer.header.revision)

    async def delete(self, key: str, prefix: bool = False) -> int:
        """Remove a key, or all that begin with it; how many there were."""
        begin = (self._root + key).encode()
        request = rpc.DeleteRangeRequest(key=begin, range_end=end_of(begin) if prefix else b"")

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.DeleteRange(request, timeout=timeout, metadata=metadata)

        answer = await self._connection.call(invoke, repeatable=False)
        return int(answer.deleted)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[WatchBatch, None]:
        """What changes under a prefix after a revision (a `Page`'s, for example), each change once.

        Never ends by itself and goes on after lost connections. Compacted if etcd no longer keeps
        what comes next: read the prefix anew, and watch from there.
        """
        return changes(self._connection, prefix, after)

    def lease(self, ttl: int) -> Lease:
        """A lease of so many seconds, kept alive in `async with`, and revoked at its end."""
        return Lease(self._connection, ttl)

    async def grant(self, ttl: int) -> int:
        """The id of a new lease that ends after so many seconds; nobody keeps it alive."""
        return await leases.grant(self._connection, ttl)

    async def revoke(self, lease: int) -> None:
        """End a lease, and with it all keys that hang on it. It may have ended before."""
        await leases.revoke(self._connection, lease)

    @property
    def maintenance(self) -> Maintenance:
        """What operators do with etcd as a whole."""
        return Maintenance(self._connection)

    async def _range(self, request: Any) -> Any:
        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.kv.Range(request, timeout=timeout, metadata=metadata)

        return await self._connection.call(invoke, repeatable=True)
