"""What configurators are told of tasks on offer (mode `sea`)."""

import asyncio
from types import SimpleNamespace
from typing import Any

from configurators.environment import Clock
from configurators.streams.messages import Offers, Task, Tasks
from dispatcher.knowledge.signals import Signal
from dispatcher.metrics import Metrics
from dispatcher.requests.delivery.offers import OfferDelivery
from dispatcher.requests.in_flight import InFlight
from dzflow.aio import BackgroundTasks
from tests.support import until


class Book:
    """A stream to a configurator that keeps the counts it was told last."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.told = asyncio.Event()

    def tell(self, message: Offers | Tasks) -> None:
        if isinstance(message, Offers):
            self.counts |= message.counts
            self.told.set()


def operation(*partitions: str) -> Any:
    tasks = [(name, Task("s1-1", 4, "h1", False, b"")) for name in partitions]
    return SimpleNamespace(rollout=SimpleNamespace(to_send=lambda: tasks))


async def test_offers_of_a_partition_that_is_gone_are_withdrawn_from_all() -> None:
    holder, other = Book(), Book()
    streams = {"c1": holder, "c2": other}
    fleet: Any = SimpleNamespace(
        connected=Signal(),
        disconnected=Signal(),
        tasks_wanted=Signal(),
        configurators=SimpleNamespace(streams=lambda: streams),
    )
    catalogue: Any = SimpleNamespace(owners={"1.0/a": ("c1", 7), "1.0/b": ("c1", 8)})
    tasks = BackgroundTasks()
    offers = OfferDelivery(catalogue, fleet, InFlight(), Metrics(), tasks, Clock())
    offers.send(operation("1.0/a", "1.0/b"))
    await holder.told.wait()
    assert (holder.counts, other.counts) == ({"1.0/a": 1, "1.0/b": 1}, {})
    offers.partition_gone("1.0/a")  # before the other one was told of its task
    await until(lambda: holder.counts == {"1.0/a": 0, "1.0/b": 1})
    offers.send(operation("1.0/a"))
    await until(lambda: other.counts == {"1.0/a": 1, "1.0/b": 1})
    del catalogue.owners["1.0/a"]
    offers.partition_gone("1.0/a")  # after that
    await until(lambda: holder.counts == other.counts == {"1.0/a": 0, "1.0/b": 1})
    await tasks.cancel()
