"""The dispatcher: what the REST service asks, and everything behind it tied together."""

import asyncio
import logging
import os
import platform
import secrets
import time
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from configurators.store.etcd.client import Access, Etcd, StoreError
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process, Record, RecordKind, State
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from configurators.streams.messages import Done
from dispatcher import views as asks
from dispatcher.changes.backups import Backups
from dispatcher.changes.expiry import Expiry
from dispatcher.changes.healer import Healer
from dispatcher.changes.hosts import Hosts
from dispatcher.changes.schema_change import Migration
from dispatcher.changes.spaces import SpaceChanges
from dispatcher.errors import Problem
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reach
from dispatcher.knowledge.siblings import Siblings
from dispatcher.reports.change_feed import News
from dispatcher.reports.flows import FlowReader, Source
from dispatcher.reports.metrics import Metrics
from dispatcher.reports.status import Insight
from dispatcher.reports.traces import Sample, Traces
from dispatcher.requests.driver import Gatherer
from dispatcher.requests.intake import Draft, Intake
from dispatcher.requests.limits import Admission, Rates
from dispatcher.requests.offers import OfferingGatherer
from dispatcher.requests.operation import Operation
from dispatcher.requests.record_writer import Journal
from dispatcher.requests.records import Records
from dispatcher.requests.replies import Answers
from dispatcher.views import Answer, Ask, DispatcherOptions, Page, RecordView, Refused
from dzflow.aio import log_failure
from sdn.topology import Host

_log = logging.getLogger(__name__)

_CHECK_EVERY = 2.0  # seconds between looks whether etcd answers


class Dispatcher:
    """Serves requests on one etcd, beside any number of others. Use as an async context manager.

    Calls with several elements answer in their order, each with a record or a problem; they raise
    only what concerns the whole call (Conflict for an idempotency key, StoreError).
    """

    def __init__(
        self, access: Access, token: bytes, options: DispatcherOptions | None = None
    ) -> None:
        self.options = options = options or DispatcherOptions()
        self.id = options.id or f"d-{secrets.token_hex(4)}"
        self.metrics = metrics = Metrics()
        self._etcd = etcd = Etcd(access)
        self._catalogue = catalogue = Catalogue(etcd, shared=options.mode == "sea")
        node = options.node or platform.node()
        me = Process(self.id, "", os.getpid(), node)
        self._registration = Registration(etcd, DISPATCHERS + self.id, me, options.lease_ttl)
        finished = SharedLeases(etcd, options.finished_ttl)
        self._journal = Journal(etcd, catalogue, finished, self._registration)
        self._fleet = Fleet(etcd, token, self.id)
        reach = Reach(catalogue, self._fleet)
        self._gatherer = self._make_gatherer(reach)
        admission: Admission[Draft] = Admission(
            options.window,
            options.window_per_host,
            options.queue,
            options.queue_per_host,
            options.most_per_host,
        )
        rates = Rates(options.rate, options.rate_per_host, options.burst_s)
        self._intake = intake = Intake(
            self.id, catalogue, self._journal, self._gatherer, admission, rates, metrics
        )
        self._siblings = Siblings(etcd, self.id, intake, self._gatherer, metrics)
        self._expiry = Expiry(etcd, intake, metrics, self._siblings.rank)
        self._answers = Answers(etcd, catalogue, self._expiry.expires)
        key_leases = SharedLeases(etcd, options.key_ttl)
        self._records = Records(
            etcd,
            catalogue,
            intake,
            self._gatherer,
            self._answers,
            self._expiry,
            key_leases,
            options.finished_ttl,
        )
        self._migration = Migration(etcd, self.id, options.grace, catalogue, intake, self._journal)
        self._space_changes = SpaceChanges(
            etcd,
            self.id,
            options,
            catalogue,
            self._migration,
            lambda: self._fleet.configurators.processes,
        )
        self._hosts = Hosts(etcd, catalogue, self._fleet, reach, options.network_timeout)
        self._healer = Healer(
            etcd,
            self.id,
            lambda: self._siblings.alive,
            catalogue,
            self._fleet,
            reach,
            options.patience,
            options.grace,
        )
        self._insight = Insight(catalogue, self._fleet, self._hosts)
        self._flows = FlowReader(etcd, catalogue, self._fleet, self._insight)
        self._news = News(etcd, catalogue, self._fleet, self._insight, self._answers)
        self._backups = Backups(etcd, catalogue, intake, self._hosts, self._space_changes)
        self._traces = (
            Traces(Path(options.traces), self.id, options.mode, options.traces_bytes)
            if options.traces
            else None
        )
        self._etcd_state = asks.Part("etcd", True)
        self._stack = AsyncExitStack()
        self._duties: list[asyncio.Task[None]] = []  # that never end by themselves
        self._connect_parts()

    def _make_gatherer(self, reach: Reach) -> Gatherer:
        fleet = self._fleet
        given = self._etcd, self._catalogue, self._journal, self.metrics, fleet.stream_to, reach
        if self.options.mode == "sna":
            return Gatherer(*given)
        offering = OfferingGatherer(*given, lambda: fleet.configurators.streams().values())
        fleet.on_take = offering.hear_take
        fleet.on_disconnected = offering.disconnected
        return offering

    def _connect_parts(self) -> None:
        self._fleet.on_dones = self._gatherer.hear_dones
        self._fleet.on_waiting = self._gatherer.hear_waiting
        self._fleet.on_connected = self._gatherer.connected
        self._gatherer.on_end = self._ended
        self._catalogue.on_network.append(self._gatherer.network_changed)
        self._fleet.on_configurator.append(lambda _: self._gatherer.network_changed())
        self._fleet.on_holds.append(self._gatherer.network_changed)
        if self._traces:
            self._gatherer.on_done = self._done
        self._intake.on_elsewhere = self._elsewhere
        self._siblings.on_look.append(lambda: self._migration.dispatcher_gone(self._siblings.alive))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._etcd)
            self._run(stack, self._registration.keep(), "register")
            await self._registration.known.wait()
            stack.push_async_callback(self._catalogue.stop)
            await self._catalogue.start()
            await stack.enter_async_context(self._fleet)
            if self._traces:
                self._traces.start()
                stack.push_async_callback(asyncio.to_thread, self._traces.close)
            parts = (  # the last one is closed first
                self._records,
                self._journal,
                self._gatherer,
                self._intake,
                self._answers,
                self._news,
                self._migration,
            )
            for part in parts:
                stack.push_async_callback(part.close)
            for follower in (self._siblings, self._expiry):
                stack.push_async_callback(follower.close)
                await follower.start()
            self._run(stack, self._look_after_etcd(), "look after etcd")
            self._run(stack, self._healer.run(), "heal the network")
            self._run(stack, self._intake.make_way(), "let others pass what takes long")
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
        asks: Sequence[Ask | Refused],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
    ) -> list[Answer]:
        """Subscribe or advertise; waits so many seconds for the switches to acknowledge."""
        answers = await self._records.begin(kind, asks, wait=wait, key=key, who=who)
        return self._counted(answers)

    async def end(
        self,
        kind: RecordKind,
        ids: Sequence[str | Refused],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
    ) -> list[Answer]:
        """Unsubscribe or unadvertise; waits so many seconds for the switches to acknowledge."""
        return self._counted(await self._records.end(kind, ids, wait=wait, key=key, who=who))

    async def update(self, kind: RecordKind, id: str, filter: Any, *, wait: float) -> Answer:
        """Replace a filter; what both filters want is never interrupted."""
        return await self._records.update(kind, id, filter, wait=wait)

    async def renew(self, kind: RecordKind, id: str) -> RecordView:
        """Let a record with a ttl live on; NotFound if it is gone, Conflict if it has no ttl."""
        return await self._records.renew(kind, id)

    async def record(self, id: str, kind: RecordKind | None = None) -> RecordView:
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

    async def put_space(self, name: str, schema: object) -> asks.SpaceView:
        """Make a space, or change its schema; returns when publishers are told of it.

        BadInput if it is no schema, Conflict if it is being changed, or names filters that do not
        fit, Failed if switches refuse it, Unavailable if no configurator is alive.
        """
        return self._insight.space(await self._space_changes.put(name, schema))

    async def delete_space(self, name: str) -> asks.SpaceView:
        """Delete a space, which is returned as it was; NotFound, Conflict while it is in use."""
        return self._insight.space(await self._space_changes.delete(name))

    def spaces(self) -> list[asks.SpaceView]:
        """All spaces."""
        return self._insight.spaces()

    def space(self, name: str) -> asks.SpaceView:
        """One space; UnknownSpace if there is none of this name."""
        return self._insight.space(self._catalogue.spaces.named(name))

    async def explain(self, space: str, filter: Any, host: str | None = None) -> asks.Explanation:
        """What a filter comes to; with a host, also the flow operations of subscribing to it."""
        return await self._flows.explain(self._catalogue.spaces.named(space), filter, host)

    # The network

    async def put_host(self, host: Host) -> asks.HostView:
        """Add or move a host; TopologyError if it does not fit, Unavailable if not all follow."""
        return await self._hosts.put(host)

    async def delete_host(self, id: str) -> asks.HostView:
        """Remove a host, which is returned; NotFound, or Conflict while it has records."""
        return await self._hosts.delete(id)

    def hosts(self) -> list[asks.HostView]:
        """All hosts."""
        return self._hosts.views()

    def topology(self) -> asks.TopologyView:
        """Switches, links, hosts, and trees with what is broken of them."""
        return self._insight.topology()

    def switches(self) -> list[asks.SwitchView]:
        """All switches."""
        return self._insight.switches()

    async def flows(self, switch: str, source: Source) -> list[asks.FlowView]:
        """Entries of a switch as it should have them (`cp`), or has them (`dp`).

        NotFound if there is no such switch, Unavailable if it cannot be read.
        """
        return await self._flows.flows(switch, source)

    # The control plane

    def partitions(self) -> list[asks.PartitionView]:
        """All partitions, their owners and loads."""
        return self._insight.partitions()

    def configurators(self) -> list[asks.ConfiguratorView]:
        """All configurators that are alive, or own something."""
        return self._insight.configurators()

    def health(self) -> asks.Health:
        """Whether requests can be served now, and if not, why."""
        parts = (self._catalogue, self._siblings, self._expiry)
        duties = [*self._duties, *(task for part in parts for task in part.tasks())]
        over = [task.get_name() for task in duties if task.done()]
        health = self._insight.health(self._etcd_state, self._siblings.alive)
        if not over:
            return health
        reason = f"it has stopped to {' and to '.join(over)}; start it anew"
        dispatchers = [
            asks.Part(self.id, False, reason) if part.name == self.id else part
            for part in health.dispatchers
        ]
        reasons = [*health.reasons, f"{self.id}: {reason}"]
        return replace(health, ready=False, reasons=reasons, dispatchers=dispatchers)

    def queue(self) -> tuple[int, int]:
        """How many operations wait, and how many are in flight."""
        return self._intake.admission.queued, self._intake.admission.running

    def changes(self, types: Collection[asks.ChangeType]) -> AsyncGenerator[asks.Change, None]:
        """What changes from now on; first the present state of all but records. Close it."""
        return self._news.changes(types)

    def sample_events(self, host: str, events: Iterable[Sample]) -> int:
        """Keep sampled events in the traces; how many there was room for."""
        return self._traces.sample(host, events) if self._traces else 0

    async def backup(self) -> bytes:
        """Spaces, hosts and active records as one document."""
        return await self._backups.backup()

    async def restore(self, data: bytes) -> asks.Restored:
        """Bring a backup back, under the same ids; Conflict unless there are no records."""
        return await self._backups.restore(data)

    # In between

    def _counted(self, answers: list[Answer]) -> list[Answer]:
        for answer in answers:
            if isinstance(answer.problem, Problem):
                self.metrics.refused[answer.problem.type] += 1
        return answers

    def _ended(self, operation: Operation, record: Record, outcome: str) -> None:
        self._intake.admission.release(record.host, operation.slow)
        self.metrics.finished(operation, record, outcome, time.monotonic())
        self._answers.ended(operation, record, outcome)
        self._intake.pump()

    def _done(self, operation: Operation, done: Done, configurator: str) -> None:
        assert self._traces
        self._traces.note(operation, done, configurator)

    def _elsewhere(self, draft: Draft, record: Record) -> None:
        if draft.call:
            self._answers.follow(draft.call, draft.place, draft.action, record, draft.given)

    async def _look_after_etcd(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_CHECK_EVERY * 2):
                    await self._etcd.check()
                self._etcd_state = asks.Part("etcd", True)
            except (StoreError, TimeoutError) as error:
                self._etcd_state = asks.Part("etcd", False, str(error) or "it does not answer")
            await asyncio.sleep(_CHECK_EVERY)

    def _run(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
        """Work in the background until the stack is left."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(log_failure)
        self._duties.append(task)

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        stack.push_async_callback(stop)
