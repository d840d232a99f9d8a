"""Keeps new owners from working before switches hold what their partitions should have there.

A former owner may have ended in the middle of a change, or before it pushed a change of the
network. So switches may lack entries that the engine of the new owner has, and a request that one
of them covers would be done without any switch having said so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from configurators.partition.known_state import KnownState
from configurators.partition.worker import PartitionWorker
from configurators.southbound.clients import SouthboundClients

_RETRY = 0.25  # seconds
_LOOK_AGAIN = 2.0  # seconds until switches that may lack entries are asked again at the latest
_NOT_HELD = "the former owner did not leave the partition in order; not yet compared: "
_NAMED = 5  # switches that a reason names

Declare = Callable[[Collection[PartitionWorker], Collection[str]], Awaitable[set[str]]]
"""Declares workers' partitions for switches, and returns those that were compared."""


async def wait_until_compared(
    workers: Collection[PartitionWorker],
    compared: Collection[str],
    known: KnownState,
    southbound: SouthboundClients,
    declare: Declare,
    owned: Callable[[PartitionWorker], bool],
) -> None:
    """Wait until all switches hold what they should of declared partitions, or are lost.

    `compared` are the switches that do so already, or refuse it. Partitions that are no longer
    `owned` are not waited for.
    """
    compared = set(compared)
    while missing := _not_compared(workers, compared, known, southbound):
        for worker in workers:
            worker.say_why(_NOT_HELD + ", ".join(sorted(missing)[:_NAMED]))
        await asyncio.sleep(_RETRY)
        await southbound.usable(missing, _LOOK_AGAIN)
        workers = [worker for worker in workers if owned(worker)]
        if workers:
            compared |= await declare(workers, missing)
    for worker in workers:
        if worker.reason and worker.reason.startswith(_NOT_HELD):
            worker.say_why(None)


def _not_compared(
    workers: Iterable[PartitionWorker],
    compared: set[str],
    known: KnownState,
    southbound: SouthboundClients,
) -> set[str]:
    """The switches with entries of partitions that are not lost, and were not compared."""
    assert known.network is not None
    there = {switch.id for switch in known.network.topology.switches}
    away = southbound.without_lost(there - compared)
    return away and away & {switch for worker in workers for switch in worker.switches()}
