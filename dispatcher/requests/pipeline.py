"""The way of an operation through the dispatcher: take in, write, deliver, settle, reply.

| step | module | what happens |
| --- | --- | --- |
| take in | `intake.py` | limits and fair turns between hosts |
| write | `writing.py` | the operation is planned and stored in its record |
| deliver | `gathering.py` | partitions carry it out; tasks are pushed or offered |
| settle | `settling.py` | the result is stored in the record |
| reply | `replies.py` | the caller gets its answer |
"""

from collections.abc import Callable

from configurators.environment import Clock
from configurators.store.etcd.client import Stored
from configurators.store.model import Record
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.usage import Usage
from dispatcher.metrics import Metrics
from dispatcher.requests.calls.replies import Replies
from dispatcher.requests.delivery.delivery import Delivery
from dispatcher.requests.delivery.gathering import Gatherer, TaskTrace
from dispatcher.requests.delivery.offers import OfferDelivery
from dispatcher.requests.delivery.push import PushDelivery
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.intake.intake import Intake, refuse
from dispatcher.requests.intake.limits import Admission, Rates, WorkRates
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.operation import Ending, Operation, Stage
from dispatcher.requests.spans import end_span
from dispatcher.requests.writing.first_write import OperationWriter
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.settled_records import SettledRecords
from dispatcher.requests.writing.settling import Settling
from dispatcher.requests.writing.wait_reasons import WaitReasons
from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError


class RequestPipeline:
    """All operations of a dispatcher, and the steps that they go through.

    Tasks are pushed to the owners of partitions, or offered to all configurators if partitions are
    `locked`.
    """

    def __init__(
        self,
        me: str,
        catalogue: Catalogue,
        fleet: Fleet,
        reachability: Reachability,
        planner: Planner,
        writer: RecordWriter,
        settled: SettledRecords,
        replies: Replies,
        admission: Admission[Operation],
        rates: Rates,
        work: WorkRates,
        usage: Usage,
        max_record: int | None,
        metrics: Metrics,
        trace: TaskTrace | None,
        clock: Clock,
        locked: bool = False,
    ) -> None:
        self.in_flight = in_flight = InFlight()
        self._tasks = tasks = BackgroundTasks()
        self._replies = replies
        self._usage = usage
        self._metrics = metrics
        self._clock = clock
        self._reasons = reasons = WaitReasons(writer, self, tasks)
        delivery: Delivery
        if locked:
            delivery = OfferDelivery(catalogue, fleet, in_flight, metrics, tasks, clock)
        else:
            delivery = PushDelivery(catalogue, fleet, in_flight, reasons, metrics, tasks, clock)
        self.intake = Intake(admission, rates, work, usage, planner, in_flight, self, clock)
        self.writing = OperationWriter(
            me, catalogue, planner, writer, in_flight, self, tasks, clock, max_record
        )
        self._gatherer = Gatherer(
            catalogue,
            fleet,
            in_flight,
            delivery,
            reasons,
            writer,
            metrics,
            trace,
            self,
            tasks,
            clock,
        )
        self._settling = Settling(
            catalogue,
            fleet,
            reachability,
            planner,
            writer,
            in_flight,
            delivery,
            reasons,
            settled,
            self,
            tasks,
            clock,
        )

    async def close(self) -> None:
        """Stop; other dispatchers go on with the operations in flight."""
        await self._tasks.cancel()

    # The steps, in order

    def write(self, operation: Operation) -> None:
        """It is its turn: plan it, and write it to its record."""
        self.writing.write(operation)

    def deliver(self, operation: Operation) -> None:
        """It is written: have partitions carry it out."""
        if operation.span is not None:
            operation.span.event("written")
        self._gatherer.deliver(operation)

    def settle(self, operation: Operation) -> None:
        """All partitions have done their part: write the result."""
        if operation.span is not None:
            operation.span.event("acknowledged")
        self._settling.settle(operation)

    def end(self, operation: Operation, record: Record, ending: Ending) -> None:
        """The result is written, or it was superseded; `record` is how the record is now."""
        self._leave(operation)
        self.intake.release(operation)
        self._count_ended(operation, record, ending)
        seconds = self._clock.monotonic() - operation.received
        action = "reindex" if operation.reindex else operation.action
        self._metrics.operation_ended(record, action, ending.value, seconds)
        end_span(operation, ending.value, record)
        self._replies.ended(operation, record, ending)

    # Detours

    def refuse(self, operation: Operation, error: DzflowError) -> None:
        """It cannot be written."""
        self.intake.release(operation)
        self._cancel_reservation(operation)
        refuse(operation, error)

    def hand_over(self, operation: Operation, record: Record | None) -> None:
        """Another operation on the record goes on instead; answer the caller when that one ends."""
        operation.enter(Stage.ENDED)
        end_span(operation, "handed over")
        self.intake.release(operation)
        self._cancel_reservation(operation)
        if record and operation.caller:
            self._replies.follow(operation.caller, operation.action, record, operation.filter)

    def resend(self, operation: Operation) -> None:
        """Tell partitions again what they have not done yet."""
        self._gatherer.resend(operation)

    def restart(self, operation: Operation) -> None:
        """Write it again, under a higher number and routed as of now."""
        if not self._reasons.postpone(operation, self.restart):
            self._leave(operation)
            self.intake.restarted(operation)
            self.write(operation.restarted())

    def record_changed(
        self, operation: Operation, found: Stored | None, then: Callable[[Operation], None]
    ) -> None:
        """The record is not as the operation knew it: end the operation, or go on with `then`."""
        self._gatherer.record_changed(operation, found, then)

    def _count_ended(self, operation: Operation, record: Record, ending: Ending) -> None:
        """Count what an operation has changed about the records that a host has."""
        if ending is Ending.SUPERSEDED:
            return  # the other operation is counted
        if operation.action == "begin" and record.state == "active":
            self._usage.activated(record.kind)
        elif record.state == "removed" and operation.record.acknowledged is not None:
            self._usage.deactivated(record.kind)
        if record.state in ("removed", "failed"):
            self._usage.remove(record)
        elif operation.action == "update" and ending is Ending.DONE:
            self._usage.change(operation.record, record.filter)

    def _cancel_reservation(self, operation: Operation) -> None:
        """An operation did not make the record that room was reserved for."""
        if operation.spec and not operation.resumed:
            self._usage.remove(operation.spec)

    def _leave(self, operation: Operation) -> None:
        """Forget an operation that was in flight."""
        self.in_flight.remove(operation)
        self._settling.forget(operation)
        operation.enter(Stage.ENDED)
