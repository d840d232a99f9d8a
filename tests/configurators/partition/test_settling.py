"""A partition that is new in its map works when the map has settled."""

import asyncio

from configurators.engine.partition_map import Node, PartitionMap
from configurators.partition.known_state import KnownState
from configurators.partition.settling import run_when_settled
from configurators.partition.worker import PartitionWorker
from configurators.state.spaces import new_space, with_map, with_settled_map

SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}
NEW, OLD = "1.0/0-0", "1.0/all"


class Worker:
    """Notes when it begins to work."""

    reason: str | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.began = asyncio.Event()

    def say_why(self, reason: str | None) -> None:
        self.reason = reason

    async def run(self, _: object) -> str:
        self.began.set()
        return "over"


def start(worker: Worker, known: KnownState) -> "asyncio.Task[str]":
    made: PartitionWorker = worker  # type: ignore[assignment]
    return asyncio.create_task(run_when_settled(made, known))


async def test_a_partition_of_a_settled_map_works_at_once() -> None:
    known = KnownState()
    known.spaces.put(new_space("cut", 1, SCHEMA, "legs", 1))
    assert await start(Worker(OLD), known) == "over"


async def test_a_new_partition_works_when_all_switches_have_the_entries_of_all_new_ones() -> None:
    # Seed 1478 of the simulation: a request that needed no operation was acknowledged before.
    known = KnownState()
    cut = with_map(new_space("cut", 1, SCHEMA, "legs", 1), 0, PartitionMap("legs", Node(0)))
    known.spaces.put(cut)
    worker = Worker(NEW)
    running = start(worker, known)
    while worker.reason is None:
        await asyncio.sleep(0)
    known.spaces_changed()  # of another space
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not worker.began.is_set()
    known.spaces.put(with_settled_map(cut, 0))
    known.spaces_changed()
    assert await running == "over"
    assert worker.reason is None
