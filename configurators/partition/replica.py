"""Keeping a partition's state up to date with what others have done there (mode `sea`)."""

from collections.abc import Iterable

from configurators.engine.partials import Kind, Partial
from configurators.partition.queue import Item, partial_of
from configurators.partition.worker import Worker
from configurators.state.loading import Loaded
from configurators.streams.messages import Task
from configurators.streams.packing import unpack_regions
from dzflow.errors import BadInput
from sdn.flows import Change, count


def build(worker: Worker, settled: Iterable[Loaded], journal: Iterable[Task]) -> None:
    """Build a partition from nothing: what settled records say, unless the journal says more.

    Of each id the journal has one task, its last.
    """
    tasks = {task.id: task for task in journal}
    loaded = [one for one in settled if one.partial.id not in tasks]
    worker.engine.load(one.partial for one in loaded)
    worker.engine.load(_begun(task) for task in tasks.values() if task.regions)
    worker.know((one.partial.id, one.seq) for one in loaded)
    _know(worker, tasks.values())
    worker.entries = worker.engine.count()


def catch_up(worker: Worker, journal: Iterable[Task]) -> None:
    """Take up what others have done since: one task of each id, its last."""
    tasks = list(journal)
    engine = worker.engine
    changed: list[Partial] = []
    for task in tasks:
        try:
            partial = partial_of(engine, task)
        except BadInput:
            # Its host is not there any more; it has no entries, until it is back.
            engine.load([_begun(task)])
        else:
            if partial:
                changed.append(partial)
    decision = engine.decide(changed, "net")
    engine.commit(decision)
    changes = count(decision.rounds)
    worker.entries += changes[Change.ADD] - changes[Change.DELETE]
    _know(worker, tasks)


def _begun(task: Task) -> Partial:
    kind = Kind.ADVERTISE if task.advertised else Kind.SUBSCRIBE
    regions, edge = unpack_regions(task.regions), unpack_regions(task.edge)
    return Partial(kind, task.id, task.host, regions, edge)


def _know(worker: Worker, tasks: Iterable[Task]) -> None:
    """Late tasks that are older do not count."""
    items = [Item(task, None, 0.0) for task in tasks]
    worker.know((item.task.id, item.task.seq) for item in items)
    worker.queue.ended(worker.engine, items)
