"""When partitions are compared with the records in etcd."""

import asyncio
from typing import Any

from configurators.partition.leftovers import LeftoverRemover
from configurators.partition.slices.queue import Item
from configurators.streams.messages import Task
from configurators.streams.stream import Stream
from tests.support import until


class Store:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.items: list[Any] = []

    async def range(self, _prefix: str) -> "Store":
        self.asked += 1
        return self


class Busy:
    """A worker with a task in work."""

    name = "5.0/all"

    def __init__(self, source: Stream) -> None:
        self.items = [Item(Task("r1", 4, "h1", False, b""), source, 0.0)]
        self.engine = self
        self.withdrawn: list[str] = []
        self.known = ["r1"]

    def ids(self) -> list[str]:
        return self.known

    def open_items(self) -> list[Item]:
        return self.items

    def withdraw(self, names: list[str]) -> None:
        self.withdrawn += names
        self.known = []


async def test_partitions_are_compared_again_after_the_tasks_of_a_gone_dispatcher_have_ended() -> (
    None
):
    stream = Stream.__new__(Stream)
    stream.closed = asyncio.Event()
    store, worker = Store(), Busy(stream)
    remover = LeftoverRemover(store, lambda: [worker], delay=0.01)  # type: ignore[arg-type,list-item]
    running = asyncio.create_task(remover.run())
    watching = asyncio.create_task(remover.watch(stream))
    stream.closed.set()
    await until(lambda: worker.withdrawn == ["r1"])
    worker.known = ["r2"]  # what has come of it
    worker.items = []
    await until(lambda: worker.withdrawn == ["r1", "r2"])
    assert store.asked == 2
    running.cancel()
    await asyncio.gather(running, watching, return_exceptions=True)
