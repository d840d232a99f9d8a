"""Keeps new owners from working before switches hold what their partitions should have there.

A former owner may have ended in the middle of a change, or before it pushed a change of the
network. So switches may lack entries that the engine of the new owner has, and a request that one
of them covers would be done without any switch having said so.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

from configurators.partition.known_state import KnownState
from configurators.partition.worker import PartitionWorker
from configurators.southbound.clients import SouthboundClients

_RETRY = 0.25  # seconds
_LOOK_AGAIN = 2.0  # seconds until switches that may lack entries are asked again at the latest
_NOT_HELD = "switches may lack entries of the partition; not yet compared: "
_NAMED = 5  # switches that a reason names

Declare = Callable[[Collection[PartitionWorker], Collection[str]], Awaitable[set[str]]]
"""Declares workers' partitions for switches, and returns those that were compared."""


async def when_compared(
    workers: Collection[PartitionWorker],
    compared: Collection[str],
    known: KnownState,
    southbound: SouthboundClients,
    declare: Declare,
    owned: Callable[[PartitionWorker], bool],
) -> AsyncIterator[list[PartitionWorker]]:
    """Workers, as soon as all switches hold what they should of their partitions, or are lost.

    All partitions are declared. `compared` are the switches that hold what they should already, or
    refuse it. Partitions that are no longer `owned` are left out.
    """
    compared = set(compared)
    while workers := [worker for worker in workers if owned(worker)]:
        there = southbound.not_left_out(_switches(known) - compared)
        lacking = {worker: there & worker.switches() for worker in workers}
        if ready := [worker for worker, missing in lacking.items() if not missing]:
            for worker in ready:
                if worker.reason and worker.reason.startswith(_NOT_HELD):
                    worker.say_why(None)
            yield ready
        workers = [worker for worker, missing in lacking.items() if missing]
        if not workers:
            return
        for worker in workers:
            worker.say_why(_NOT_HELD + ", ".join(sorted(lacking[worker])[:_NAMED]))
        missing = set().union(*lacking.values())
        await asyncio.sleep(_RETRY)
        await southbound.usable(missing, _LOOK_AGAIN)
        workers = [worker for worker in workers if owned(worker)]
        if workers:
            compared |= await declare(workers, missing)


def _switches(known: KnownState) -> set[str]:
    assert known.network is not None
    return {switch.id for switch in known.network.topology.switches}
