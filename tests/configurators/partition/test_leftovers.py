"""When partitions are compared with the records there are."""

import asyncio
from typing import Any

import pytest

from configurators.partition.leftovers import Leftovers
from configurators.streams.stream import Stream


class Store:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.items: list[Any] = []

    async def range(self, _prefix: str) -> "Store":
        self.asked += 1
        return self


class Busy:
    """A worker that has something to do for somebody."""

    name = "5.0/all"

    def __init__(self, *asked_by: object) -> None:
        self.asking = list(asked_by)
        self.engine = self
        self.withdrawn: list[str] = []
        self.known = ["r1"]

    def ids(self) -> list[str]:
        return self.known

    def asked_by(self) -> list[object]:
        return self.asking

    def withdraw(self, names: list[str]) -> None:
        self.withdrawn += names
        self.known = []


async def test_records_are_read_once_and_once_more_when_the_work_of_the_gone_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("configurators.partition.leftovers.AFTER", 0.01)

    stream = Stream.__new__(Stream)
    stream.closed = asyncio.Event()
    store, worker = Store(), Busy(stream)
    leftovers = Leftovers(store, lambda: [worker])  # type: ignore[arg-type,list-item]
    running = asyncio.create_task(leftovers.run())
    watching = asyncio.create_task(leftovers.watch(stream))
    stream.closed.set()
    await asyncio.sleep(0.3)
    assert (store.asked, worker.withdrawn) == (1, ["r1"])
    worker.known = ["r2"]  # what has come of it
    worker.asking = []
    await asyncio.sleep(0.3)
    assert (store.asked, worker.withdrawn) == (2, ["r1", "r2"])
    running.cancel()
    await asyncio.gather(running, watching, return_exceptions=True)
