"""How many workers there should be, and what the process that places them says about some."""

import asyncio
from collections.abc import Iterable
from typing import Any

from configurators.state.wanted import leaving, read_count, staying
from configurators.store.documents import Delays, decode_delays
from configurators.store.etcd.client import Etcd
from configurators.store.keys import DELAYS, WANTED
from configurators.store.mirror import Mirror
from configurators.store.model import WorkerKind
from dispatcher.knowledge.signals import Signal


class Workers:
    """The wanted counts, and why workers have not started or ended yet; kept up to date."""

    def __init__(self, etcd: Etcd) -> None:
        self.changed: Signal[()] = Signal()
        self._counts: dict[str, int | None] = {}
        self._revisions: dict[str, int] = {}  # of the counts that are stored
        self._delays: Delays = {}
        self._mirrors: list[Mirror[Any]] = [
            Mirror(etcd, WANTED, bytes, self._count_stored),
            Mirror(etcd, DELAYS, decode_delays, self._delays_stored),
        ]

    async def start(self) -> None:
        """Read everything, and keep it up to date."""
        for mirror in self._mirrors:
            await mirror.start()

    async def stop(self) -> None:
        """Stop keeping it up to date."""
        await asyncio.gather(*(mirror.stop() for mirror in self._mirrors))

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return [task for mirror in self._mirrors for task in mirror.tasks()]

    def wanted(self, kind: WorkerKind) -> int | None:
        """How many workers of a kind there should be; None if that is not known."""
        return self._counts.get(kind)

    def wanted_at(self, kind: WorkerKind) -> int:
        """The revision of the wanted count; 0 if none is stored. For comparisons in etcd."""
        return self._revisions.get(kind, 0)

    def leaving(self, kind: WorkerKind, ids: Iterable[str]) -> frozenset[str]:
        """Those of some workers of a kind that are to leave."""
        return leaving(ids, self.wanted(kind))

    def staying(self, kind: WorkerKind, ids: Iterable[str]) -> frozenset[str]:
        """Those of some workers of a kind that get work: all if none of them is to stay."""
        return staying(ids, self.wanted(kind))

    def delays(self, kind: WorkerKind) -> dict[str, str]:
        """Why workers of a kind have not started or ended yet, by id."""
        return self._delays.get(kind, {})

    def starting(self, kind: WorkerKind) -> frozenset[str]:
        """The workers of a kind that should have started."""
        delayed = frozenset(self.delays(kind))
        return delayed - self.leaving(kind, delayed)

    def _count_stored(self, kind: str, value: bytes | None, revision: int) -> None:
        self._counts[kind] = read_count(value)
        self._revisions[kind] = 0 if value is None else revision
        self.changed.emit()

    def _delays_stored(self, key: str, value: Delays | None, revision: int) -> None:  # noqa: ARG002
        if not key:
            self._delays = value or {}
            self.changed.emit()
