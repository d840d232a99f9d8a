"""Brings a partition's state up to date with what other configurators have done."""

from collections.abc import Iterable
from typing import NamedTuple

from configurators.engine.partials import Kind, Partial
from configurators.partition.slices.queue import Item, partial_of
from configurators.partition.worker import PartitionWorker
from configurators.state.loading import Loaded, load_usable
from configurators.streams.messages import Task
from configurators.streams.packing import unpack_regions
from dzflow.errors import BadInput
from sdn.tables.flows import Change, count


class Replica(NamedTuple):
    """The state of a partition that another configurator may own now.

    `position` is the last entry of the partition's log that the state includes (mode `sea`). The
    state counts as long as the partition map has this number: a leaf may have gone and come back.
    """

    worker: PartitionWorker
    map_number: int
    position: str = ""


def build(worker: PartitionWorker, settled: Iterable[Loaded], logged: Iterable[Task]) -> None:
    """Build a partition from nothing: from settled records, and from logged tasks.

    `logged` has the last task of each id that the partition's log names; these ids are built from
    the task instead of the record.
    """
    tasks = {task.id: task for task in logged}
    loaded = [one for one in settled if one.partial.id not in tasks]
    load_usable(worker.engine, (one.partial for one in loaded))
    worker.engine.load(_active_partial(task) for task in tasks.values() if task.regions)
    worker.know((one.partial.id, one.seq) for one in loaded)
    _know(worker, tasks.values())
    worker.entries = worker.engine.count()


def catch_up(worker: PartitionWorker, logged: Iterable[Task]) -> None:
    """Apply what other configurators have done since: the last logged task of each id."""
    tasks = list(logged)
    engine = worker.engine
    changed: list[Partial] = []
    for task in tasks:
        try:
            partial = partial_of(engine, task)
        except BadInput:
            # Its host is gone. The request has no entries until the host is back.
            engine.load([_active_partial(task)])
        else:
            if partial:
                changed.append(partial)
    decision = engine.decide(changed, "net")
    engine.commit(decision)
    changes = count(decision.rounds)
    worker.entries += changes[Change.ADD] - changes[Change.DELETE]
    _know(worker, tasks)


def copy_part(worker: PartitionWorker, tasks: Iterable[Task]) -> None:
    """Apply a part of a copy: what the owner has of some records, each named once."""
    new: list[Task] = []
    known: list[Task] = []
    for task in tasks:
        (known if task.id in worker.engine or not task.regions else new).append(task)
    load_usable(worker.engine, map(_active_partial, new))
    _know(worker, new)
    if known:
        catch_up(worker, known)


def _active_partial(task: Task) -> Partial:
    kind = Kind.ADVERTISE if task.advertised else Kind.SUBSCRIBE
    regions, edge = unpack_regions(task.regions), unpack_regions(task.edge)
    return Partial(kind, task.id, task.host, regions, edge)


def _know(worker: PartitionWorker, tasks: Iterable[Task]) -> None:
    """Have the queue supersede late tasks that are older than these."""
    items = [Item(task, None, 0.0) for task in tasks]
    worker.know((item.task.id, item.task.seq) for item in items)
    worker.queue.ended(worker.engine, items)
