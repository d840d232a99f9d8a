"""Removes requests from partitions whose records no longer exist.

A slow dispatcher may have a partition carry out a task of a record that other dispatchers have
ended meanwhile. The slow dispatcher withdraws the request when it finds out. If it dies before
that, no other dispatcher knows of it. So whenever the stream to a dispatcher is closed, the
configurator compares its partitions with the records in etcd.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from configurators.partition.worker import PartitionWorker
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import RECORDS, PartitionName
from configurators.streams.stream import Stream

log = logging.getLogger(__name__)

DELAY = 1.0  # seconds from a closed stream to the comparison: others may close, work may end


class LeftoverRemover:
    """Compares partitions with the records in etcd whenever a dispatcher is gone."""

    def __init__(
        self,
        etcd: Etcd,
        workers: Callable[[], Collection[PartitionWorker]],
        delay: float = DELAY,
    ) -> None:
        self._etcd = etcd
        self._workers = workers
        self._delay = delay
        self._due = asyncio.Event()

    async def watch(self, stream: Stream) -> None:
        """Have partitions compared when the dispatcher at the other end is gone."""
        await stream.closed.wait()
        self._due.set()

    async def run(self) -> None:
        """Compare whenever a dispatcher is gone, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await asyncio.sleep(self._delay)
            in_work = self._gone_dispatchers_have_tasks()
            await self._compare_or_retry()
            if in_work:
                while self._gone_dispatchers_have_tasks() and not self._due.is_set():
                    await asyncio.sleep(self._delay)
                self._due.set()  # to compare what came of these tasks, too

    def _gone_dispatchers_have_tasks(self) -> bool:
        return any(
            item.to and item.to.closed.is_set()
            for worker in self._workers()
            for item in worker.open_items()
        )

    async def _compare_or_retry(self) -> None:
        try:
            await self._compare(list(self._workers()))
        except StoreError as error:
            log.warning("records cannot be read: %s", error)
            self._due.set()

    async def _compare(self, workers: Iterable[PartitionWorker]) -> None:
        spaces: dict[int, list[tuple[PartitionWorker, list[str]]]] = {}
        for worker in workers:
            # Before records are read: every id in the engine has, or had, a record by then.
            known = worker, worker.engine.ids()
            spaces.setdefault(PartitionName.parse(worker.name).space, []).append(known)
        for number, some in spaces.items():
            page = await self._etcd.range(f"{RECORDS}{number:x}/")
            there = {item.key.rpartition("/")[2] for item in page.items}
            for worker, ids in some:
                left = [name for name in ids if name not in there]
                if left:
                    log.warning(
                        "partition %s: the records of %d requests no longer exist: %s",
                        worker.name,
                        len(left),
                        left[:5],
                    )
                    worker.withdraw(left)
