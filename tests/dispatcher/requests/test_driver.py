"""What the gatherer makes of answers and verdicts that come late, or are of somebody else."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from configurators.state.spaces import SpaceView, new_space
from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd, Stored
from configurators.store.keys import record_key
from configurators.store.model import Process, Record
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from configurators.streams.messages import Done, Dones, Task
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reach
from dispatcher.reports.metrics import Metrics
from dispatcher.requests.driver import Gatherer
from dispatcher.requests.operation import Operation
from dispatcher.requests.record_writer import Journal, Verdict, Write
from tests.dispatcher.support import SCHEMA, TOKEN


class Slow(Journal):
    """A journal of which the test says what becomes of writes."""

    def __init__(self, etcd: Etcd, catalogue: Catalogue) -> None:
        me = Registration(etcd, "dispatchers/d1", Process("d1", "", 1, "n"))
        super().__init__(etcd, catalogue, SharedLeases(etcd, 60), me)
        self.writes: list[Write] = []

    def write(self, write: Write, gather: bool = False) -> None:  # noqa: ARG002 - as the other
        self.writes.append(write)


class Scene:
    """A gatherer without a store, and an operation in one partition whose owner has epoch 20."""

    def __init__(self) -> None:
        etcd = Etcd(Access(("127.0.0.1:1",)))
        self.catalogue = catalogue = Catalogue(etcd)
        doc = new_space("stocks", 1, SCHEMA, "legs", 5)
        catalogue.spaces.put(doc)
        self.partition = SpaceView.of(doc).partitions()[0]
        catalogue.owners[self.partition] = "c1", 20
        self.journal = Slow(etcd, catalogue)
        metrics = Metrics()
        reach = Reach(catalogue, Fleet(etcd, TOKEN, "d1"))
        self.gatherer = Gatherer(etcd, catalogue, self.journal, metrics, lambda _: None, reach)
        self.ended: list[str] = []
        self.gatherer.on_end = lambda _, __, outcome: self.ended.append(outcome)
        regions = {0: b"r" * 24}
        record_id = "s1-0000000000000001"
        self.record = Record(
            record_id, "subscription", "h1", "stocks", {}, regions, "pending", 1, 0.0, "d1"
        )
        self.operation = Operation(self.record, 5, {}, {self.partition: (regions[0], b"")})
        self.gatherer.start(self.operation)

    def done(self, epoch: int) -> None:
        task: Task = self.operation.latest[self.partition]
        done = Done(self.partition, task.id, task.seq, epoch, "done")
        self.gatherer.hear_dones(Dones([done]), "c1")

    def changed(self, write: Write, record: Record, revision: int) -> None:
        """A write finds the record as something else."""
        write.found = Stored(record_key(record.id), encode(record), revision, 5, 0)
        write.revision = revision
        write.tell(Verdict.CHANGED)


def play(act: Callable[[Scene], None]) -> None:
    async def run() -> None:
        scene = Scene()
        act(scene)
        await scene.gatherer.close()

    work: Coroutine[Any, Any, None] = run()
    asyncio.run(work)


def test_what_a_former_owner_did_is_not_settled_though_the_new_one_was_known_before() -> None:
    def act(scene: Scene) -> None:
        scene.done(epoch=10)
        assert not scene.journal.writes
        assert list(scene.operation.open) == [scene.partition]
        scene.done(epoch=10)
        assert not scene.journal.writes
        scene.done(epoch=20)
        assert len(scene.journal.writes) == 1

    play(act)


def test_a_write_of_its_own_that_was_thought_lost_does_not_end_an_operation() -> None:
    def act(scene: Scene) -> None:
        scene.done(epoch=20)
        [write] = scene.journal.writes
        noted = replace(scene.record, reason="it has to wait")
        scene.changed(write, noted, 9)
        assert not scene.ended
        second = scene.journal.writes[1]
        assert second.revision == 9
        second.tell(Verdict.WRITTEN)
        assert scene.ended == ["done"]

    play(act)


def test_an_operation_is_over_when_somebody_else_has_taken_its_record() -> None:
    def act(scene: Scene) -> None:
        scene.done(epoch=20)
        [write] = scene.journal.writes
        scene.changed(write, replace(scene.record, seq=2, by="d2"), 9)
        assert scene.ended == ["superseded"]

    play(act)
