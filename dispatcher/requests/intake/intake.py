"""Takes operations in: rate limits, quotas, a bounded queue, and turns between hosts."""

import asyncio
import logging

from configurators.environment import Clock
from configurators.store.model import RecordKind
from dispatcher.calls import RecordSpec
from dispatcher.errors import TooManyRequests
from dispatcher.knowledge.usage import Usage
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.intake.limits import Admission, Rates, WorkRates
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.operation import Operation, Stage
from dispatcher.requests.spans import end_span
from dispatcher.requests.steps import Steps
from dzflow.aio import OncePerTurn
from dzflow.errors import DzflowError

_log = logging.getLogger(__name__)

_PER_TURN = 64  # operations that are begun in one turn of the loop
_TURN_TIME = 0.005  # seconds after which the rest of a turn is left to the next one
_FREE = 0.002  # seconds: a filter that takes less does not count as work
# Seconds in flight after which an operation is slow: if it is known what it waits for, and if not.
_SLOW, _SLOW_ANYWAY = 1.0, 3.0


class Intake:
    """Queues operations, and begins them in fair order."""

    def __init__(
        self,
        admission: Admission[Operation],
        rates: Rates,
        work: WorkRates,
        usage: Usage,
        planner: Planner,
        in_flight: InFlight,
        steps: Steps,
        clock: Clock,
    ) -> None:
        """`work` counts the milliseconds that filters take, `usage` the records of each host."""
        self._admission = admission
        self._rates = rates
        self._work = work
        self._usage = usage
        self._planner = planner
        self._in_flight = in_flight
        self._steps = steps
        self._clock = clock
        self._begin_soon = OncePerTurn(self._begin_some)

    @property
    def queued(self) -> int:
        """How many operations wait for their turn."""
        return self._admission.queued

    @property
    def running(self) -> int:
        """How many operations have begun, and not ended yet."""
        return self._admission.running

    def add(self, operation: Operation) -> None:
        """Queue an operation; refuse it if the queue or its rate limit has no room for it."""
        host = operation.host
        try:
            if operation.action == "begin":
                self._planner.check_host(host)
            self._check_limits(host)
        except DzflowError as error:
            refuse(operation, error)
            return
        self._admission.put(host, operation)
        self._begin_soon.schedule()

    def force(self, operation: Operation) -> None:
        """Begin an operation at once, whatever else waits, and whatever quota is reached.

        To index a record again is not at the cost of its host: that does not count as running.
        """
        if not operation.reindex:
            self._admission.force(operation.host)
        if operation.spec and not operation.resumed:
            self._usage.add(operation.spec)
        self._steps.write(operation)

    def release(self, operation: Operation) -> None:
        """An operation that has begun is over: its place goes to the next one."""
        if not operation.reindex:
            self._admission.release(operation.host, operation.slow)
            self._begin_waiting()

    def restarted(self, operation: Operation) -> None:
        """An operation begins again, in the place that it has."""
        if operation.slow:
            self._admission.not_slow(operation.host)

    async def mark_slow_operations(self) -> None:
        """Forever: let operations that wait long give way to others of their host."""
        while True:
            await asyncio.sleep(_SLOW / 2)
            if self._admission.queued:
                now = self._clock.monotonic()
                for operation in self._in_flight:
                    limit = _SLOW if operation.rollout.waiting else _SLOW_ANYWAY
                    quick = not (operation.slow or operation.reindex)
                    if quick and operation.write_ended < now - limit:
                        operation.slow = True
                        self._admission.slow(operation.host)
                self._begin_waiting()

    def check_call(self, host: str) -> None:
        """Count a call that leaves no record; TooManyRequests if there is no room for it now."""
        self._check_limits(host)
        self._check_work(host, self._clock.monotonic())

    def charge_work(self, host: str, seconds: float) -> None:
        """Count the processor time that a call of a host has taken."""
        if seconds > _FREE:
            self._work.use(host, seconds * 1000, self._clock.monotonic())

    def check_work(self, host: str) -> None:
        """TooManyRequests if the host's filters have taken too much time."""
        self._check_work(host, self._clock.monotonic())

    def check_quota(self, spec: RecordSpec) -> None:
        """QuotaReached if a record could not be begun now; nothing is reserved for it."""
        self._usage.check(spec)

    def new_record_id(self, kind: RecordKind, spec: RecordSpec, restricted: bool) -> str:
        """An id for a record that can be begun, at the cost of its host.

        UnknownHost, UnknownSpace, Forbidden or BadInput if it cannot be begun. Callers check the
        host's work first.
        """
        before = self._planner.spent
        try:
            return self._planner.new_record_id(kind, spec, restricted)
        finally:
            self.charge_work(spec.host, self._planner.spent - before)

    def _check_work(self, host: str, now: float) -> None:
        if wait := self._work.wait_for_own(host, now):
            raise TooManyRequests(
                f"the filters of {host} take more processor time than they may; simplify them, send"
                f" fewer at once, or wait {wait:.1f} s (limits.host_work)",
                wait,
            )
        if wait := self._work.wait_for_all(host, now):
            raise TooManyRequests(
                "the filters of all hosts together take more processor time than they may, and"
                f" {host} has sent some of them; simplify them, send fewer at once, or wait"
                f" {wait:.1f} s (limits.work)",
                wait,
            )

    def _check_limits(self, host: str) -> None:
        """Count one operation of a host; TooManyRequests if there is no room for it now."""
        if wait := self._rates.admit(host, self._clock.monotonic()):
            raise TooManyRequests(
                f"{host} asks for more operations a second than it may; wait {wait:.1f} s", wait
            )
        if not self._admission.room(host):
            raise TooManyRequests(f"the queue is full with {self._admission.queued} operations")

    def _begin_waiting(self) -> None:
        if self._admission.queued:
            self._begin_soon.schedule()

    def _begin_some(self) -> None:
        """Begin what may begin now, for a bounded time, so that the loop gets to other work."""
        began = now = self._clock.monotonic()
        for _ in range(_PER_TURN):
            operations = self._admission.next_to_begin(1)
            if not operations:
                return
            operation = operations[0]
            if operation.caller and operation.caller.cancelled:
                operation.enter(Stage.ENDED)
                end_span(operation, "cancelled")
                self._admission.release(operation.host)
            elif operation.action == "end":
                self._steps.write(operation)
            else:
                self._begin(operation, now)
            now = self._clock.monotonic()
            if now - began > _TURN_TIME:
                break
        self._begin_waiting()

    def _begin(self, operation: Operation, now: float) -> None:
        """Begin or update a record, unless the host's filters or records are too many."""
        try:
            # The filters of a call with a key were paid for before the key was used.
            if not operation.repeatable:
                self._check_work(operation.host, now)
            if operation.spec:
                # Usage remembers each space that it is asked about: no invented ones.
                self._planner.check_space(operation.spec.space)
                self._usage.reserve(operation.spec)
            elif operation.stored:
                self._usage.check_growth(operation.stored.record, operation.filter)
        except DzflowError as error:
            self._admission.release(operation.host)
            refuse(operation, error)
            return
        operation.limited = True
        before = self._planner.spent
        self._steps.write(operation)
        self.charge_work(operation.host, self._planner.spent - before)


def refuse(operation: Operation, error: DzflowError) -> None:
    """End an operation that is not stored, and tell its caller why."""
    operation.enter(Stage.ENDED)
    end_span(operation, "refused")
    if operation.caller:
        operation.caller.refuse(error)
    else:
        _log.warning("%s %s: %s", operation.action, operation.id, error)
