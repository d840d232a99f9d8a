"""The dispatcher: serves the calls of the REST service, and ties all its parts together."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from configurators.environment import Environment
from configurators.store.etcd.client import Access, StoreError
from configurators.store.model import RecordKind, State
from configurators.tracing import Span
from dispatcher import views
from dispatcher.calls import Answer, Page, RecordSpec
from dispatcher.errors import Problem
from dispatcher.options import DispatcherOptions
from dispatcher.parts import DispatcherParts
from dispatcher.reports.flows import Source
from dispatcher.reports.traces import Sample
from dispatcher.requests.intake.routing import check_size, filter_bytes
from dzflow.aio import BackgroundTasks
from dzflow.index import Shape

_CHECK_EVERY = 2.0  # seconds between checks whether etcd answers


class Dispatcher:
    """Serves requests on one etcd, beside any number of others. Use as an async context manager.

    Calls with several elements answer in their order, each with a record or a problem; they raise
    only errors of the whole call (Conflict for an idempotency key, StoreError).

    A call that concerns one part alone is a call of that part: `status`, `hosts`, `event_keys`,
    `scaling`. The monitor works with `etcd`, and with what the dispatcher knows: `catalogue`,
    `fleet`, `workers`.
    """

    def __init__(
        self,
        access: Access,
        token: bytes,
        options: DispatcherOptions | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.options = options or DispatcherOptions()
        environment = environment or Environment()
        self._parts = parts = DispatcherParts(access, token, self.options, environment)
        self.id = parts.id
        self.metrics = parts.metrics
        self.etcd = parts.etcd
        self.catalogue = parts.catalogue
        self.fleet = parts.fleet
        self.workers = parts.workers
        self.status = parts.status
        self.hosts = parts.hosts
        self.network_parts = parts.network_parts
        self.host_proposals = parts.host_proposals
        self.event_keys = parts.event_keys
        self.scaling = parts.scaling
        self._monotonic = environment.clock.monotonic
        self._etcd_state = views.Part("etcd", True)
        self._stack = AsyncExitStack()
        self._duties: list[asyncio.Task[None]] = []  # they never end by themselves

    async def __aenter__(self) -> Self:
        parts = self._parts
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(parts.etcd)
            # First, because nothing else can be started if etcd is full.
            stack.push_async_callback(parts.retention.close)
            await parts.retention.start()
            stack.push_async_callback(parts.siblings.stop)
            await parts.siblings.start()  # the upkeep has to know who is on duty
            self._run(stack, parts.upkeep.run(), "upkeep of etcd")
            self._run(stack, parts.registration.keep(), "registration")
            await parts.registration.known.wait()
            stack.push_async_callback(parts.catalogue.stop)
            await parts.catalogue.start()
            stack.push_async_callback(parts.workers.stop)
            await parts.workers.start()
            await stack.enter_async_context(parts.fleet)
            if parts.traces:
                parts.traces.start()
                stack.push_async_callback(asyncio.to_thread, parts.traces.close)
            closed = (  # the last one is closed first
                parts.records,
                parts.writer,
                parts.pipeline,
                parts.followed,
                parts.change_feed,
                parts.index_changes,
                parts.adoption,
            )
            for part in closed:
                stack.push_async_callback(part.close)
            await parts.siblings.refresh()  # all that have registered before this one
            await parts.usage.start()
            parts.adoption.start()
            stack.push_async_callback(parts.expiry.close)
            await parts.expiry.start()
            self._run(stack, parts.retention.run(), "removal of old records and keys")
            self._run(stack, self._check_etcd(), "etcd check")
            self._run(stack, parts.healer.run(), "network healer")
            self._run(stack, parts.discovery.run(), "network discovery")
            self._run(stack, parts.host_proposals.run(), "acceptance of hosts")
            self._run(stack, parts.table_reuse.run(), "reuse of tables")
            self._run(stack, parts.usage.run(), "count of records")
            self._run(stack, parts.intake.mark_slow_operations(), "marking of slow operations")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    # Subscriptions and advertisements

    async def begin(
        self,
        kind: RecordKind,
        specs: Sequence[RecordSpec | Problem],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
        restricted: bool = False,
        span: Span | None = None,
    ) -> list[Answer]:
        """Subscribe or advertise; waits so many seconds for the switches to acknowledge.

        `restricted` if a host asks for it, which needs the permission. `span` is the one of the
        call, if its trace is sampled.
        """
        self._parts.upkeep.refuse_if_full()
        answers = await self._parts.records.begin(
            kind, specs, wait=wait, key=key, who=who, restricted=restricted, span=span
        )
        return self._counted(answers)

    async def end(
        self,
        kind: RecordKind,
        ids: Sequence[str | Problem],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
        span: Span | None = None,
    ) -> list[Answer]:
        """Unsubscribe or unadvertise; waits so many seconds for the switches to acknowledge.

        `span` is the one of the call, if its trace is sampled.
        """
        answers = await self._parts.records.end(kind, ids, wait=wait, key=key, who=who, span=span)
        return self._counted(answers)

    async def update(
        self,
        kind: RecordKind,
        id: str,
        filter: Any,
        *,
        wait: float,
        restricted: bool = False,
        span: Span | None = None,
    ) -> Answer:
        """Replace a filter; events that both filters match are delivered all the time.

        `restricted` if a host asks for it, which needs the permission. `span` is the one of the
        call, if its trace is sampled.
        """
        self._parts.upkeep.refuse_if_full()
        return await self._parts.records.update(
            kind, id, filter, wait=wait, restricted=restricted, span=span
        )

    async def renew(self, kind: RecordKind, id: str) -> views.RecordView:
        """Let a record with a ttl live on; NotFound if it is gone, Conflict if it has no ttl."""
        return await self._parts.records.renew(kind, id)

    async def record(self, id: str, kind: RecordKind | None = None) -> views.RecordView:
        """A record, also one that was removed or has failed lately; NotFound if there is none."""
        return await self._parts.records.record(id, kind)

    async def host_of(self, id: str, kind: RecordKind) -> str:
        """The host that a record belongs to, which never changes; NotFound if there is none."""
        return await self._parts.records.host_of(id, kind)

    async def records(
        self,
        kind: RecordKind,
        *,
        host: str | None = None,
        space: str | None = None,
        state: State | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """Records of a kind, a page at a time; removed and failed ones if asked for by state."""
        return await self._parts.records.records(
            kind, host=host, space=space, state=state, limit=limit, after=after
        )

    # Spaces

    async def put_space(self, name: str, schema: object) -> views.SpaceView:
        """Make a space, or change its schema; returns when it is announced to publishers.

        BadInput if the schema is not valid, Conflict if it is being changed or if filters do not
        fit, Failed if switches refuse it, Unavailable if no configurator is alive.
        """
        self._parts.upkeep.refuse_if_full()
        return self.status.show_space(await self._parts.space_changes.put(name, schema))

    async def put_shapes(
        self, name: str, version: int, shapes: Iterable[Shape]
    ) -> views.ShapesView:
        """Give the index of a space another dictionary of shapes, for one of its versions.

        Requests get regions by it from now on, and records are indexed again in the background.
        BadInput if shapes do not fit, NotFound, Conflict if the space is being changed.
        """
        self._parts.upkeep.refuse_if_full()
        await self._parts.space_changes.put_shapes(name, version, shapes)
        return self.status.shapes(name)

    async def shape_usage(self, name: str) -> views.ShapesUsage:
        """How a space's active subscriptions use its shapes; UnknownSpace, or TooManyRequests."""
        return await self._parts.flows.shape_usage(self._parts.catalogue.spaces.named(name))

    async def delete_space(self, name: str) -> views.SpaceView:
        """Delete a space, which is returned as it was; NotFound, Conflict while it is in use."""
        return self.status.show_space(await self._parts.space_changes.delete(name))

    async def replace_key(self, space: str, grace: float) -> views.SpaceView:
        """Make a new key for a space whose events carry tags; UnknownSpace, or Conflict."""
        return self.status.show_space(await self.event_keys.replace_key(space, grace))

    async def explain(
        self,
        space: str,
        filter: Any = None,
        host: str | None = None,
        who: str = "anyone",
        *,
        event: Mapping[str, Any] | None = None,
        restricted: bool = False,
    ) -> views.Explanation:
        """What a filter leads to, and how an event of a host would travel.

        With a host, also the flow operations of subscribing to the filter. If `restricted`, without
        what the path of an event tells of other hosts' filters. It counts as an operation of that
        host, or else of the caller `who`: TooManyRequests if it may not have another one now.
        """
        payer = host or who
        self._parts.intake.check_call(payer)
        check_size(len(filter_bytes(filter)), self.options.max_filter)
        found = await self._parts.flows.explain(
            self._parts.catalogue.spaces.named(space),
            filter,
            event,
            host,
            lambda seconds: self._parts.intake.charge_work(payer, seconds),
        )
        if not restricted or found.event is None:
            return found
        path = replace(found.event, hops=None, delivered=None, unwanted=None, missed=None)
        return replace(found, event=path)

    # The network

    async def flows(self, switch: str, source: Source) -> list[views.FlowView]:
        """Entries of a switch as it should have them (`cp`), or has them (`dp`).

        NotFound if there is no such switch, Unavailable if it cannot be read.
        """
        return await self._parts.flows.flows(switch, source)

    async def reach(self, partition: str) -> views.PartitionReach:
        """The switches, links and hosts that a partition uses; NotFound if there is none such."""
        return await self._parts.flows.reach(partition)

    # The control plane

    def health(self) -> views.Health:
        """Whether requests can be served now, and if not, why."""
        parts = self._parts
        keepers = (
            parts.catalogue,
            parts.workers,
            parts.siblings,
            parts.adoption,
            parts.expiry,
            parts.retention,
        )
        duties = [*self._duties, *(task for keeper in keepers for task in keeper.tasks())]
        stopped = [task.get_name() for task in duties if task.done()]
        etcd, warning = self._etcd_state, parts.upkeep.warning
        if etcd.ok and warning:
            etcd = views.Part("etcd", not parts.upkeep.full, warning)
        health = self.status.judge_health(self.id, etcd, parts.siblings.alive, stopped)
        store = parts.upkeep.view()
        return replace(
            health,
            store=store
            and replace(
                store,
                records=parts.usage.records(),
                active_subscriptions=parts.usage.active_subscriptions(),
            ),
        )

    def queue(self) -> tuple[int, int]:
        """How many operations wait, and how many are in flight."""
        return self._parts.intake.queued, self._parts.intake.running

    def changes(
        self,
        types: Collection[views.ChangeType],
        host: str | None = None,
        most: int | None = None,
    ) -> AsyncGenerator[views.Change, None]:
        """Changes from now on; first the present state of all but records. The caller closes it.

        Records are those of a host, or of all; with `most`, at most so many of them per second.
        """
        return self._parts.change_feed.changes(types, host, most)

    def publish_plan(self, space: str, view: Struct) -> None:
        """Send readers of changes how far the plan for a space's partition map has come."""
        self._parts.change_feed.publish_plan(space, view)

    def publish_job(self, view: Struct) -> None:
        """Send readers of changes the state of the scheduled job."""
        self._parts.change_feed.publish_job(view)

    def publish_history(self, view: Struct) -> None:
        """Send readers of changes an event of the history of workers and partitions."""
        self._parts.change_feed.publish_history(view)

    def publish_load(self, view: Callable[[], Struct]) -> None:
        """Send the load to the readers that asked for it; `view` makes what they are sent."""
        self._parts.change_feed.publish_load(view)

    def sample_events(self, host: str, events: Iterable[Sample]) -> int:
        """Keep sampled events in the traces; how many there was room for."""
        return self._parts.traces.sample(host, events) if self._parts.traces else 0

    @property
    def trace_rows_dropped(self) -> int:
        """How many rows of traces were dropped since the start."""
        return self._parts.traces.dropped if self._parts.traces else 0

    async def backup(self) -> bytes:
        """Spaces, hosts and active records as one document."""
        return await self._parts.backups.backup()

    async def restore(self, data: bytes) -> views.Restored:
        """Restore a backup under the same ids; Conflict if there are records."""
        self._parts.upkeep.refuse_if_full()
        return await self._parts.backups.restore(data)

    async def compact_store(self) -> views.Compaction:
        """Compact and defragment etcd, and make room if its quota was reached.

        Each member of etcd is blocked meanwhile, one after the other. StoreRefused if etcd's user
        may not do so.
        """
        return await self._parts.upkeep.compact()

    def _counted(self, answers: list[Answer]) -> list[Answer]:
        for answer in answers:
            if answer.problem is not None:
                self.metrics.refused[answer.problem.type] += 1
        return answers

    async def _check_etcd(self) -> None:
        while True:
            began = self._monotonic()
            try:
                async with asyncio.timeout(_CHECK_EVERY * 2):
                    await self._parts.etcd.check()
                self.metrics.etcd_checks.observe(self._monotonic() - began)
                self._etcd_state = views.Part("etcd", True)
            except (StoreError, TimeoutError) as error:
                self.metrics.etcd_failures += 1
                self._etcd_state = views.Part("etcd", False, str(error) or "it does not answer")
            await asyncio.sleep(_CHECK_EVERY)

    def _run(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task in the background until the stack is left."""
        tasks = BackgroundTasks()
        self._duties.append(tasks.spawn(work, name))
        stack.push_async_callback(tasks.cancel)
