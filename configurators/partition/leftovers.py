"""What a dispatcher had done too late, and did not live to take back.

A dispatcher that was slow may have a partition do something for a record that others have ended
meanwhile. When it finds that out, it takes it back; if it dies before, nobody else knows of it. So
whenever a dispatcher is gone, partitions are compared with the records there are.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from configurators.partition.worker import Worker
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import RECORDS, PartitionName
from configurators.streams.stream import Stream

log = logging.getLogger(__name__)

AFTER = 1.0  # seconds in which several may go, and what they have sent is worked on


class Leftovers:
    """Looks for what is left in partitions of ours of records that are no more."""

    def __init__(self, etcd: Etcd, workers: Callable[[], Collection[Worker]]) -> None:
        self._etcd = etcd
        self._workers = workers
        self._lost = asyncio.Event()

    async def watch(self, stream: Stream) -> None:
        """Look when the dispatcher at the other end is gone."""
        await stream.closed.wait()
        self._lost.set()

    async def run(self) -> None:
        """Look whenever somebody is gone, until cancelled."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            await asyncio.sleep(AFTER)
            at_work = self._at_work()
            await self._look()
            if at_work:
                while self._at_work() and not self._lost.is_set():
                    await asyncio.sleep(AFTER)
                self._lost.set()  # so that what has come of it is seen, too

    def _at_work(self) -> bool:
        """Whether something is worked on that somebody has sent who is gone."""
        return any(_works_for_the_gone(worker) for worker in self._workers())

    async def _look(self) -> None:
        try:
            await self._compare(list(self._workers()))
        except StoreError as error:
            log.warning("records cannot be read: %s", error)
            self._lost.set()

    async def _compare(self, workers: Iterable[Worker]) -> None:
        spaces: dict[int, list[tuple[Worker, list[str]]]] = {}
        for worker in workers:
            # Before records are read: whatever is there has, or had, a record by now.
            known = worker, worker.engine.ids()
            spaces.setdefault(PartitionName.parse(worker.name).space, []).append(known)
        for number, some in spaces.items():
            page = await self._etcd.range(f"{RECORDS}{number:x}/")
            there = {item.key.rpartition("/")[2] for item in page.items}
            for worker, ids in some:
                left = [name for name in ids if name not in there]
                if left:
                    log.warning("%s: %d records are no more: %s", worker.name, len(left), left[:5])
                    worker.withdraw(left)


def _works_for_the_gone(worker: Worker) -> bool:
    return any(isinstance(to, Stream) and to.closed.is_set() for to in worker.asked_by())
