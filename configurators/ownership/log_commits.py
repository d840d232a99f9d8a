"""Writes the logs of several partitions in one transaction: a group commit (mode `sea`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from configurators.ownership.coalesce import Coalescer
from configurators.store.etcd.client import Etcd, Op, Put
from configurators.store.locks import Lock

_MOST_OPS = 100  # in one transaction; etcd takes 128
_MOST_BYTES = 1 << 19  # unless one partition alone has more; etcd takes a little over a megabyte


class _Commit(NamedTuple):
    """What the owner of a partition wants to write, as long as it has the lock."""

    lock: Lock
    ops: Sequence[Op]

    @property
    def size(self) -> int:
        return sum(len(op.value) for op in self.ops if isinstance(op, Put))


class LogCommits:
    """Coalesces concurrent writes: those that come during a transaction share the next one.

    Each transaction compares all locks. If one is lost, the partitions are written one by one, so
    the loss of one lock never holds back the others.
    """

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._writes = Coalescer(self._write)

    async def commit(self, lock: Lock, ops: Sequence[Op]) -> bool:
        """Carry out operations that can be repeated; False if the lock is lost.

        StoreError if it is not known whether they were carried out. A partition has one call at a
        time.
        """
        return await self._writes.call(lock.partition, _Commit(lock, ops))

    async def close(self) -> None:
        """Cancel what is in progress."""
        await self._writes.close()

    async def _write(self, commits: Mapping[str, _Commit]) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        for some in _groups(commits):
            together = await self._transact(list(some.values()))
            for name, commit in some.items():
                found[name] = together or (len(some) > 1 and await self._transact([commit]))
        return found

    async def _transact(self, commits: Sequence[_Commit]) -> bool:
        compares = [commit.lock.holds for commit in commits]
        ops = [op for commit in commits for op in commit.ops]
        return (await self._etcd.transact(compares, ops)).succeeded


def _groups(commits: Mapping[str, _Commit]) -> Iterator[dict[str, _Commit]]:
    """Commits in groups that etcd takes in one transaction."""
    group: dict[str, _Commit] = {}
    ops = size = 0
    for name, commit in commits.items():
        if group and (ops + len(commit.ops) > _MOST_OPS or size + commit.size > _MOST_BYTES):
            yield group
            group, ops, size = {}, 0, 0
        group[name] = commit
        ops += len(commit.ops)
        size += commit.size
    if group:
        yield group
