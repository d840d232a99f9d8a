"""The dispatcher: serves the calls of the REST service, and ties all its parts together."""

import asyncio
import platform
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from configurators.environment import Environment
from configurators.store.etcd.client import Access, StoreError
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process, RecordKind, State
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from dispatcher import views
from dispatcher.calls import Answer, Page, RecordSpec
from dispatcher.changes.backups import Backups
from dispatcher.changes.event_keys import EventKeys
from dispatcher.changes.expiry import Expiry
from dispatcher.changes.healer import Healer
from dispatcher.changes.hosts import Hosts
from dispatcher.changes.retention import Retention
from dispatcher.changes.schema_change import SchemaChanges
from dispatcher.changes.spaces import SpaceChanges
from dispatcher.changes.store_upkeep import StoreUpkeep
from dispatcher.errors import Problem
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.usage import Usage
from dispatcher.metrics import Metrics
from dispatcher.options import DispatcherOptions
from dispatcher.reports.change_feed import ChangeFeed
from dispatcher.reports.flows import FlowReader, Source
from dispatcher.reports.status import Status
from dispatcher.reports.traces import Sample, Traces
from dispatcher.requests.adoption import Adoption
from dispatcher.requests.calls.followed import FollowedRecords
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.calls.records import Records
from dispatcher.requests.calls.replies import Replies
from dispatcher.requests.intake.limits import Admission, Rates, WorkRates
from dispatcher.requests.intake.permissions import Permissions
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.intake.routing import Routing, check_size, filter_bytes
from dispatcher.requests.operation import Operation
from dispatcher.requests.pipeline import Pipeline
from dispatcher.requests.writing.record_writer import RecordWriter
from dzflow.aio import BackgroundTasks
from sdn.topology import Host

_CHECK_EVERY = 2.0  # seconds between checks whether etcd answers


class Dispatcher:
    """Serves requests on one etcd, beside any number of others. Use as an async context manager.

    Calls with several elements answer in their order, each with a record or a problem; they raise
    only errors of the whole call (Conflict for an idempotency key, StoreError).
    """

    def __init__(
        self,
        access: Access,
        token: bytes,
        options: DispatcherOptions | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.options = options = options or DispatcherOptions()
        environment = environment or Environment()
        clock = environment.clock
        shared = options.mode == "sea"
        self.id = me = options.id or f"d-{environment.new_id(4)}"
        self.metrics = metrics = Metrics()
        self._etcd = etcd = environment.store(access)
        process = Process(me, "", environment.pid, options.node or platform.node())
        self._registration = Registration(etcd, DISPATCHERS + me, process, options.lease_ttl)

        # Knowledge
        self._catalogue = catalogue = Catalogue(etcd, shared)
        self._fleet = fleet = Fleet(etcd, token, me, environment.connect)
        self._siblings = siblings = Siblings(etcd, me)
        reachability = Reachability(catalogue, fleet)
        times = ExpiryTimes(etcd, clock)

        # Requests
        self._traces = traces = (
            Traces(Path(options.traces), me, options.mode, options.traces_bytes, clock)
            if options.traces
            else None
        )
        routing = Routing(clock.cpu)
        permissions = Permissions(options.permissions, clock.cpu)
        planner = Planner(
            me, catalogue, routing, clock, environment.new_id, permissions, options.max_filter
        )
        self._usage = usage = Usage(etcd, siblings, options.quotas, clock)
        record_views = RecordViews(catalogue, routing, times)
        self._followed = followed = FollowedRecords(etcd)
        replies = Replies(record_views, followed)
        monotonic, wall = clock.monotonic, clock.wall
        finished = SharedLeases(
            etcd, "finished", options.finished_ttl, monotonic=monotonic, wall=wall
        )
        keys = SharedLeases(etcd, "keys", options.key_ttl, monotonic=monotonic, wall=wall)
        self._writer = writer = RecordWriter(etcd, catalogue, finished, self._registration, clock)
        admission: Admission[Operation] = Admission(
            options.window,
            options.window_per_host,
            options.queue,
            options.queue_per_host,
            options.most_per_host,
        )
        rates = Rates(options.rate, options.rate_per_host, options.burst_s)
        work = WorkRates(options.work, options.work_per_host, options.burst_s)
        self._pipeline = pipeline = Pipeline(
            me,
            catalogue,
            fleet,
            reachability,
            planner,
            writer,
            replies,
            admission,
            rates,
            work,
            usage,
            options.max_record,
            metrics,
            traces,
            clock,
            shared,
        )
        self._intake = intake = pipeline.intake
        self._adoption = adoption = Adoption(etcd, me, siblings, pipeline, metrics, clock)
        self._records = Records(
            etcd,
            catalogue,
            pipeline,
            record_views,
            replies,
            followed,
            times,
            keys,
            options.finished_ttl,
            options.max_page,
            clock,
        )

        # Changes of the whole
        self._retention = retention = Retention(
            etcd, siblings, (finished, keys), options.bounds, metrics, clock
        )
        self._upkeep = upkeep = StoreUpkeep(
            etcd, siblings, retention, options.quota, options.history, clock
        )
        self._expiry = Expiry(
            etcd, times, intake, siblings, metrics, clock, lambda: upkeep.usable_since
        )
        self._schema_changes = SchemaChanges(
            etcd, me, options.grace, catalogue, siblings, adoption, intake, writer, clock
        )
        self._space_changes = SpaceChanges(
            etcd, me, options, catalogue, fleet, self._schema_changes, environment.new_id
        )
        self._event_keys = EventKeys(etcd, catalogue, clock, environment.new_id, options.max_page)
        self._hosts = hosts = Hosts(
            etcd, catalogue, fleet, reachability, options.network_timeout, clock
        )
        self._healer = Healer(
            etcd,
            me,
            siblings,
            catalogue,
            fleet,
            reachability,
            options.patience,
            options.grace,
            clock,
        )
        self._backups = Backups(
            etcd,
            catalogue,
            intake,
            usage,
            hosts,
            self._space_changes,
            options.max_filter,
            clock,
        )

        # Reports
        self._status = status = Status(catalogue, fleet, hosts)
        self._flows = FlowReader(etcd, catalogue, fleet, status, clock.cpu)
        self._change_feed = ChangeFeed(etcd, catalogue, fleet, status, record_views)

        self._etcd_state = views.Part("etcd", True)
        self._stack = AsyncExitStack()
        self._duties: list[asyncio.Task[None]] = []  # they never end by themselves

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._etcd)
            # First, because nothing else can be started if etcd is full.
            stack.push_async_callback(self._retention.close)
            await self._retention.start()
            stack.push_async_callback(self._siblings.stop)
            await self._siblings.start()  # the upkeep has to know who is on duty
            self._run(stack, self._upkeep.run(), "upkeep of etcd")
            self._run(stack, self._registration.keep(), "registration")
            await self._registration.known.wait()
            stack.push_async_callback(self._catalogue.stop)
            await self._catalogue.start()
            await stack.enter_async_context(self._fleet)
            if self._traces:
                self._traces.start()
                stack.push_async_callback(asyncio.to_thread, self._traces.close)
            parts = (  # the last one is closed first
                self._records,
                self._writer,
                self._pipeline,
                self._followed,
                self._change_feed,
                self._schema_changes,
                self._adoption,
            )
            for part in parts:
                stack.push_async_callback(part.close)
            await self._siblings.refresh()  # all that have registered before this one
            await self._usage.start()
            self._adoption.start()
            stack.push_async_callback(self._expiry.close)
            await self._expiry.start()
            self._run(stack, self._retention.run(), "removal of old records and keys")
            self._run(stack, self._check_etcd(), "etcd check")
            self._run(stack, self._healer.run(), "network healer")
            self._run(stack, self._usage.run(), "count of records")
            self._run(stack, self._intake.mark_slow_operations(), "marking of slow operations")
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
    ) -> list[Answer]:
        """Subscribe or advertise; waits so many seconds for the switches to acknowledge.

        `restricted` if a host asks for it, which needs the permission.
        """
        self._upkeep.refuse_if_full()
        answers = await self._records.begin(
            kind, specs, wait=wait, key=key, who=who, restricted=restricted
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
    ) -> list[Answer]:
        """Unsubscribe or unadvertise; waits so many seconds for the switches to acknowledge."""
        return self._counted(await self._records.end(kind, ids, wait=wait, key=key, who=who))

    async def update(
        self, kind: RecordKind, id: str, filter: Any, *, wait: float, restricted: bool = False
    ) -> Answer:
        """Replace a filter; events that both filters match are delivered all the time.

        `restricted` if a host asks for it, which needs the permission.
        """
        self._upkeep.refuse_if_full()
        return await self._records.update(kind, id, filter, wait=wait, restricted=restricted)

    async def renew(self, kind: RecordKind, id: str) -> views.RecordView:
        """Let a record with a ttl live on; NotFound if it is gone, Conflict if it has no ttl."""
        return await self._records.renew(kind, id)

    async def record(self, id: str, kind: RecordKind | None = None) -> views.RecordView:
        """A record, also one that was removed or has failed lately; NotFound if there is none."""
        return await self._records.record(id, kind)

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
        return await self._records.records(
            kind, host=host, space=space, state=state, limit=limit, after=after
        )

    # Spaces

    async def put_space(self, name: str, schema: object) -> views.SpaceView:
        """Make a space, or change its schema; returns when publishers are told of it.

        BadInput if the schema is not valid, Conflict if it is being changed or if filters do not
        fit, Failed if switches refuse it, Unavailable if no configurator is alive.
        """
        self._upkeep.refuse_if_full()
        return self._status.space(await self._space_changes.put(name, schema))

    async def delete_space(self, name: str) -> views.SpaceView:
        """Delete a space, which is returned as it was; NotFound, Conflict while it is in use."""
        return self._status.space(await self._space_changes.delete(name))

    def spaces(self) -> list[views.SpaceView]:
        """All spaces."""
        return self._status.spaces()

    def space(self, name: str) -> views.SpaceView:
        """One space; UnknownSpace if there is none of this name."""
        return self._status.space(self._catalogue.spaces.named(name))

    async def publishing_key(self, advertisement: str) -> views.PublishingKey:
        """The key for the publisher of an active advertisement; NotFound, or Conflict."""
        return await self._event_keys.publishing_key(advertisement)

    async def receiving_keys(self, subscription: str) -> views.ReceivingKeys:
        """The keys for the receiver of an active subscription; NotFound, or Conflict."""
        return await self._event_keys.receiving_keys(subscription)

    async def publishers(
        self, subscription: str, *, limit: int, after: str | None
    ) -> views.Publishers:
        """What hosts advertise in the space of an active subscription; NotFound, or Conflict."""
        return await self._event_keys.publishers(subscription, limit=limit, after=after)

    async def replace_key(self, space: str, grace: float) -> views.SpaceView:
        """Make a new key for a space whose events carry tags; UnknownSpace, or Conflict."""
        return self._status.space(await self._event_keys.replace_key(space, grace))

    async def explain(
        self, space: str, filter: Any, host: str | None = None, who: str = "anyone"
    ) -> views.Explanation:
        """What a filter leads to; with a host, also the flow operations of subscribing to it.

        It counts as an operation of that host, or else of the caller `who`: TooManyRequests if it
        may not have another one now.
        """
        payer = host or who
        self._intake.check_call(payer)
        check_size(len(filter_bytes(filter)), self.options.max_filter)
        return await self._flows.explain(
            self._catalogue.spaces.named(space),
            filter,
            host,
            lambda seconds: self._intake.charge_work(payer, seconds),
        )

    # The network

    async def put_host(self, host: Host) -> views.HostView:
        """Add or move a host; TopologyError if it does not fit, Unavailable if not all apply it."""
        return await self._hosts.put(host)

    async def delete_host(self, id: str) -> views.HostView:
        """Remove a host, which is returned; NotFound, or Conflict while it has records."""
        return await self._hosts.delete(id)

    def hosts(self) -> list[views.HostView]:
        """All hosts."""
        return self._hosts.views()

    def topology(self) -> views.TopologyView:
        """Switches, links, hosts, and trees with what is broken of them."""
        return self._status.topology()

    def switches(self) -> list[views.SwitchView]:
        """All switches."""
        return self._status.switches()

    async def flows(self, switch: str, source: Source) -> list[views.FlowView]:
        """Entries of a switch as it should have them (`cp`), or has them (`dp`).

        NotFound if there is no such switch, Unavailable if it cannot be read.
        """
        return await self._flows.flows(switch, source)

    # The control plane

    def partitions(self) -> list[views.PartitionView]:
        """All partitions, their owners and loads."""
        return self._status.partitions()

    def configurators(self) -> list[views.ConfiguratorView]:
        """All configurators that are alive, or own something."""
        return self._status.configurators()

    def health(self) -> views.Health:
        """Whether requests can be served now, and if not, why."""
        parts = (self._catalogue, self._siblings, self._adoption, self._expiry, self._retention)
        duties = [*self._duties, *(task for part in parts for task in part.tasks())]
        stopped = [task.get_name() for task in duties if task.done()]
        etcd, warning = self._etcd_state, self._upkeep.warning
        if etcd.ok and warning:
            etcd = views.Part("etcd", not self._upkeep.full, warning)
        health = self._status.health(self.id, etcd, self._siblings.alive, stopped)
        return replace(health, store=self._upkeep.view())

    def queue(self) -> tuple[int, int]:
        """How many operations wait, and how many are in flight."""
        return self._intake.queued, self._intake.running

    def changes(self, types: Collection[views.ChangeType]) -> AsyncGenerator[views.Change, None]:
        """Changes from now on; first the present state of all but records. The caller closes it."""
        return self._change_feed.changes(types)

    def sample_events(self, host: str, events: Iterable[Sample]) -> int:
        """Keep sampled events in the traces; how many there was room for."""
        return self._traces.sample(host, events) if self._traces else 0

    async def backup(self) -> bytes:
        """Spaces, hosts and active records as one document."""
        return await self._backups.backup()

    async def restore(self, data: bytes) -> views.Restored:
        """Restore a backup under the same ids; Conflict if there are records."""
        self._upkeep.refuse_if_full()
        return await self._backups.restore(data)

    async def compact_store(self) -> views.Compaction:
        """Compact and defragment etcd, and make room if its quota was reached.

        Each member of etcd is blocked meanwhile, one after the other. StoreRefused if etcd's user
        may not do so.
        """
        return await self._upkeep.compact()

    def _counted(self, answers: list[Answer]) -> list[Answer]:
        for answer in answers:
            if answer.problem is not None:
                self.metrics.refused[answer.problem.type] += 1
        return answers

    async def _check_etcd(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_CHECK_EVERY * 2):
                    await self._etcd.check()
                self._etcd_state = views.Part("etcd", True)
            except (StoreError, TimeoutError) as error:
                self._etcd_state = views.Part("etcd", False, str(error) or "it does not answer")
            await asyncio.sleep(_CHECK_EVERY)

    def _run(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task in the background until the stack is left."""
        tasks = BackgroundTasks()
        self._duties.append(tasks.spawn(work, name))
        stack.push_async_callback(tasks.cancel)
