"""A partition that is new in its map works only when the map has settled.

Its engine decides by the entries that switches should hold. Before they hold them, a request could
be acknowledged because an entry covers it that is not there yet.
"""

from configurators.partition.known_state import KnownState
from configurators.partition.worker import LogTasks, PartitionWorker

_WHY = "the partition map is being changed: not all switches have the new partitions yet"


async def run_when_settled(
    worker: PartitionWorker, known: KnownState, log_tasks: LogTasks | None = None
) -> str:
    """Have a worker work, as soon as its partition may; see `PartitionWorker.run`."""
    if known.spaces.cutting(worker.name):
        worker.say_why(_WHY)
        await known.wait_until_settled(worker.name)
        if worker.reason == _WHY:
            worker.say_why(None)
    return await worker.run(log_tasks)
