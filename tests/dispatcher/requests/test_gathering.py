"""What becomes of answers and results that come late, or belong to another operation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace, new_space
from configurators.store.documents import decode_record, encode
from configurators.store.etcd.client import Access, Etcd, Stored
from configurators.store.keys import record_key
from configurators.store.model import Process, Record
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from configurators.streams.messages import Done, Dones
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.usage import Quotas, Usage
from dispatcher.metrics import Metrics
from dispatcher.requests.calls.followed import FollowedRecords
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.calls.replies import Replies
from dispatcher.requests.intake.limits import Admission, Rates, WorkRates
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.intake.routing import Routing
from dispatcher.requests.operation import Operation
from dispatcher.requests.pipeline import RequestPipeline
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.settled_records import SettledRecords
from dispatcher.requests.writing.stored_records import StoredRecord
from dispatcher.requests.writing.writes import Write, WriteResult
from tests.dispatcher.support import SCHEMA, TOKEN

CLOCK = Clock()


class HeldWriter(RecordWriter):
    """A record writer that leaves it to the test what becomes of writes."""

    def __init__(self, etcd: Etcd, catalogue: Catalogue) -> None:
        me = Registration(etcd, "dispatchers/d1", Process("d1", "", 1, "n"))
        super().__init__(etcd, catalogue, SharedLeases(etcd, "finished", 60), me, CLOCK)
        self.writes: list[Write] = []

    def write(self, write: Write, apart: float = 0.0) -> None:  # noqa: ARG002 - as the other
        self.writes.append(write)


class Scene:
    """A pipeline without etcd, and an operation in one partition whose owner has epoch 20."""

    def __init__(self) -> None:
        etcd = Etcd(Access(("127.0.0.1:1",)))
        catalogue = Catalogue(etcd)
        doc = new_space("stocks", 1, SCHEMA, "legs", 1)
        catalogue.spaces.put(doc)
        [self.partition] = LoadedSpace.of(doc).partitions()
        catalogue.owners[self.partition] = "c1", 20
        self.writer = HeldWriter(etcd, catalogue)
        self.metrics = Metrics()
        self.fleet = Fleet(etcd, TOKEN, "d1")
        routing = Routing()
        views = RecordViews(catalogue, routing, ExpiryTimes(etcd, CLOCK))
        admission: Admission[Operation] = Admission(10, 10, 10, 10)
        self.pipeline = RequestPipeline(
            "d1",
            catalogue,
            self.fleet,
            Reachability(catalogue, self.fleet),
            Planner("d1", catalogue, routing, CLOCK, lambda size: "0" * 2 * size),
            self.writer,
            SettledRecords(),
            Replies(views, FollowedRecords(etcd)),
            admission,
            Rates(None, None, 1.0),
            WorkRates(None, None, 1.0),
            Usage(etcd, Siblings(etcd, "d1"), Quotas(), CLOCK),
            None,
            self.metrics,
            None,
            CLOCK,
        )
        regions = routing.index(LoadedSpace.of(doc), False, {}).regions
        pending = Record(
            "s1-0000000000000001",
            "subscription",
            "h1",
            "stocks",
            {},
            regions,
            "pending",
            1,
            0.0,
            "d2",
        )
        self.operation = Operation.resume(StoredRecord(pending, 5), CLOCK.monotonic())
        self.pipeline.intake.force(self.operation)
        self.writer.writes.pop().report(WriteResult.WRITTEN)

    @property
    def record(self) -> Record:
        """The record as the operation has written it."""
        return self.operation.record

    @property
    def endings(self) -> list[str]:
        """How operations have ended."""
        return [ending for _, _, ending in self.metrics.operations.elements()]

    def done(self, epoch: int) -> None:
        """The partition's owner has done its task."""
        task = self.operation.rollout.latest[self.partition]
        done = Done(self.partition, task.id, task.seq, epoch, "done")
        self.fleet.tasks_done.emit(Dones([done]), "c1")

    def changed(self, write: Write, record: Record, revision: int) -> None:
        """A write finds that the record has changed."""
        write.found = Stored(record_key(record.id), encode(record), revision, 5, 0)
        write.revision = revision
        write.report(WriteResult.CHANGED)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    await made.pipeline.close()


async def test_what_a_former_owner_did_is_not_settled_though_the_new_one_was_known_before() -> None:
    async with scene() as s:
        s.done(epoch=10)
        assert not s.writer.writes
        assert list(s.operation.rollout.open) == [s.partition]
        s.done(epoch=10)
        assert not s.writer.writes
        s.done(epoch=20)
        assert len(s.writer.writes) == 1


async def test_a_write_of_its_own_that_was_thought_lost_does_not_end_an_operation() -> None:
    async with scene() as s:
        s.done(epoch=20)
        [write] = s.writer.writes
        s.changed(write, replace(s.record, reason="it has to wait"), 9)
        assert not s.endings
        second = s.writer.writes[1]
        assert second.revision == 9
        second.report(WriteResult.WRITTEN)
        assert s.endings == ["done"]


async def test_an_operation_is_over_when_another_has_changed_its_record() -> None:
    async with scene() as s:
        s.done(epoch=20)
        [write] = s.writer.writes
        s.changed(write, replace(s.record, seq=9, by="d2"), 9)
        assert s.endings == ["superseded"]


async def test_when_etcd_answers_in_another_order_the_later_operation_goes_on() -> None:
    async with scene() as s:
        s.pipeline.restart(s.operation)
        [earlier] = s.writer.writes
        written = decode_record(earlier.document or b"")
        later = Operation.end(StoredRecord(written, 9), CLOCK.monotonic())
        s.pipeline.intake.force(later)
        s.writer.writes[1].report(WriteResult.WRITTEN)
        earlier.report(WriteResult.WRITTEN)
        assert s.endings == ["superseded"]
        assert s.pipeline.in_flight.get(later.id) is later
        s.operation = later
        s.done(epoch=20)
        s.writer.writes[2].report(WriteResult.WRITTEN)
        assert sorted(s.endings) == ["done", "superseded"]
        assert not list(s.pipeline.in_flight)
        assert not s.pipeline.intake.running
