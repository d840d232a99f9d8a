"""The parts of a dispatcher, and which of them each one needs."""

import platform

from configurators.environment import Environment
from configurators.store.etcd.client import Access
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from dispatcher.changes.backups import Backups
from dispatcher.changes.discovery import NetworkDiscovery
from dispatcher.changes.event_keys import EventKeys
from dispatcher.changes.expiry import Expiry
from dispatcher.changes.healer import Healer
from dispatcher.changes.host_proposals import HostProposals
from dispatcher.changes.hosts import Hosts
from dispatcher.changes.index_change import IndexChanges
from dispatcher.changes.network_parts import NetworkParts
from dispatcher.changes.reindexing import Reindexing
from dispatcher.changes.retention import Retention
from dispatcher.changes.scaling import Scaling
from dispatcher.changes.spaces import SpaceChanges
from dispatcher.changes.store_upkeep import StoreUpkeep
from dispatcher.changes.table_reuse import TableReuse
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.usage import Usage
from dispatcher.knowledge.workers import Workers
from dispatcher.metrics import Metrics
from dispatcher.options import DispatcherOptions
from dispatcher.reports.change_feed import ChangeFeed
from dispatcher.reports.flows import FlowReader
from dispatcher.reports.status import Status
from dispatcher.reports.trace_storage import open_storage
from dispatcher.reports.traces import Traces
from dispatcher.requests.adoption import Adoption
from dispatcher.requests.calls.followed import FollowedRecords
from dispatcher.requests.calls.keyed_calls import KeyedCalls
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.calls.records import Records
from dispatcher.requests.calls.replies import Replies
from dispatcher.requests.intake.limits import Admission, Rates, WorkRates
from dispatcher.requests.intake.permissions import Permissions
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.intake.routing import Routing
from dispatcher.requests.operation import Operation
from dispatcher.requests.pipeline import RequestPipeline
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.settled_records import SettledRecords


class DispatcherParts:
    """All parts of a dispatcher; nothing is started yet."""

    def __init__(
        self, access: Access, token: bytes, options: DispatcherOptions, environment: Environment
    ) -> None:
        clock = environment.clock
        locked = options.mode == "sea"
        self.id = me = options.id or f"d-{environment.new_id(4)}"
        self.metrics = metrics = Metrics()
        self.etcd = etcd = environment.store(access)
        process = Process(me, "", environment.pid, options.node or platform.node())
        self.registration = Registration(etcd, DISPATCHERS + me, process, options.lease_ttl)

        # Knowledge
        self.catalogue = catalogue = Catalogue(etcd, locked)
        self.fleet = fleet = Fleet(etcd, token, me, environment.connect)
        self.siblings = siblings = Siblings(etcd, me)
        self.workers = workers = Workers(etcd)
        reachability = Reachability(catalogue, fleet)
        times = ExpiryTimes(etcd, clock)

        # Requests
        self.traces = traces = (
            Traces(
                open_storage(options.traces, options.traces_bytes, clock),
                me,
                options.mode,
                clock,
                options.traces_roll,
                spaces=lambda: catalogue.space_docs,
            )
            if options.traces
            else None
        )
        routing = Routing(clock.cpu)
        permissions = Permissions(options.permissions, clock.cpu)
        planner = Planner(
            me, catalogue, routing, clock, environment.new_id, permissions, options.max_filter
        )
        self.usage = usage = Usage(etcd, siblings, options.quotas, clock)
        record_views = RecordViews(catalogue, routing, times)
        self.followed = followed = FollowedRecords(etcd)
        replies = Replies(record_views, followed)
        monotonic, wall = clock.monotonic, clock.wall
        finished = SharedLeases(
            etcd, "finished", options.finished_ttl, monotonic=monotonic, wall=wall
        )
        keys = SharedLeases(etcd, "keys", options.key_ttl, monotonic=monotonic, wall=wall)
        self.writer = writer = RecordWriter(etcd, catalogue, finished, self.registration, clock)
        admission: Admission[Operation] = Admission(
            options.window,
            options.window_per_host,
            options.queue,
            options.queue_per_host,
            options.most_per_host,
        )
        rates = Rates(options.rate, options.rate_per_host, options.burst_s)
        work = WorkRates(options.work, options.work_per_host, options.burst_s)
        settled = SettledRecords()
        self.pipeline = pipeline = RequestPipeline(
            me,
            catalogue,
            fleet,
            reachability,
            planner,
            writer,
            settled,
            replies,
            admission,
            rates,
            work,
            usage,
            options.max_record,
            metrics,
            traces,
            clock,
            locked,
        )
        self.intake = intake = pipeline.intake
        self.adoption = adoption = Adoption(etcd, me, siblings, pipeline, metrics, clock)
        keyed = KeyedCalls(etcd, intake, record_views, replies, keys, options.finished_ttl, clock)
        self.records = Records(
            etcd,
            catalogue,
            pipeline,
            settled,
            record_views,
            replies,
            followed,
            times,
            keyed,
            options.max_page,
            clock,
        )

        # Changes of the whole
        self.retention = retention = Retention(
            etcd, siblings, (finished, keys), options.bounds, metrics, clock
        )
        self.upkeep = upkeep = StoreUpkeep(
            etcd, siblings, retention, options.quota, options.history, clock
        )
        self.expiry = Expiry(
            etcd, times, intake, siblings, metrics, clock, lambda: upkeep.usable_since
        )
        reindexing = Reindexing(etcd, intake, self.followed, clock)
        self.index_changes = IndexChanges(
            etcd, me, options.grace, catalogue, siblings, adoption, reindexing, writer, clock
        )
        self.space_changes = SpaceChanges(
            etcd, me, options, catalogue, fleet, workers, self.index_changes, environment.new_id
        )
        self.scaling = Scaling(
            etcd, fleet, workers, options.southbound_limit, options.southbound_outside
        )
        self.event_keys = EventKeys(etcd, catalogue, clock, environment.new_id, options.max_page)
        self.hosts = hosts = Hosts(
            etcd, catalogue, fleet, reachability, options.network_timeout, clock
        )
        self.healer = Healer(
            etcd,
            siblings,
            catalogue,
            fleet,
            reachability,
            options.patience,
            options.grace,
            clock,
        )
        self.discovery = NetworkDiscovery(
            etcd, siblings, catalogue, fleet, options.settled_after, clock
        )
        self.host_proposals = HostProposals(
            etcd,
            siblings,
            catalogue,
            fleet,
            hosts,
            options.hosts,
            options.accept_after,
            clock,
        )
        self.table_reuse = TableReuse(
            etcd, siblings, catalogue, fleet, reachability, options.reuse_from
        )
        self.backups = Backups(
            etcd,
            catalogue,
            intake,
            usage,
            hosts,
            self.space_changes,
            options.max_filter,
            clock,
        )

        # Reports
        self.status = status = Status(catalogue, fleet, hosts, workers)
        self.network_parts = NetworkParts(hosts, status.switches, status.links)
        self.flows = FlowReader(etcd, catalogue, fleet, status, clock.cpu)
        self.change_feed = ChangeFeed(
            etcd,
            catalogue,
            fleet,
            workers,
            siblings,
            writer,
            status,
            record_views,
            self.host_proposals,
        )
