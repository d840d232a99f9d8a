"""Flow entries, computed from records or read from a switch; what filters and events lead to."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from configurators.engine.engine import Engine
from configurators.engine.partials import Partial, Request
from configurators.state.loading import load_usable, partials
from configurators.state.network import Network
from configurators.state.spaces import LoadedSpace, LoadedVersion, Spaces
from configurators.store.etcd.client import Etcd
from configurators.store.keys import RECORDS, PartitionName
from configurators.store.model import NetworkDoc, Record, SpaceDoc
from configurators.streams.messages import Flows as FlowsAnswer
from configurators.streams.messages import ReadFlows
from configurators.streams.packing import unpack_entries
from configurators.streams.stream import RemoteError, StreamClosed
from dispatcher.errors import NotFound, TooManyRequests, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.reports.event_paths import concerning, follow_event
from dispatcher.reports.status import Status
from dispatcher.requests.writing.stored_records import MOST_LOOKED_AT, scan
from dispatcher.views import (
    EventPath,
    Explanation,
    FlowView,
    LinkView,
    PartitionReach,
    PartitionSwitchView,
    TouchedFlow,
)
from dzflow.address import BadAddress, read_match
from dzflow.attribute import FieldError
from dzflow.filters import conjunction_text, parse_filter
from dzflow.intervals import Key
from sdn.flows import Action, FlowEntry, Output
from sdn.readings import Counts, Reading
from sdn.topology import Host, Link

Source = Literal["cp", "dp"]

_READ_TIME = 60.0
_MOST_WAITING = 8  # computations of flows, in progress or waiting; each may take seconds
_NAME = "explained"


class MissingMember(FieldError):
    """A question lacks something that is needed to answer it."""


class FlowReader:
    """Computes what switches should hold, and reads what they do hold."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        status: Status,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._fleet = fleet
        self._status = status
        self._cpu = cpu
        self._computing = asyncio.Lock()  # a computation has all records in memory
        self._computations = 0  # in progress or waiting

    async def flows(self, switch: str, source: Source) -> list[FlowView]:
        """The entries of dzflow on a switch; NotFound, or Unavailable if it is not connected."""
        view = self._status.switch(switch)
        spaces = Spaces((space.doc for space in self._catalogue.spaces), self._catalogue.prefix)
        if source == "dp":
            if view.state != "up":
                reason = view.reason or "no southbound process has reported it yet"
                raise Unavailable(f"switch {switch} is {view.state}: {reason}")
            names = LegNames(self._catalogue.network)
            return await asyncio.to_thread(
                flow_views, spaces, names, switch, await self._read(switch)
            )
        network = self._catalogue.network_doc
        assert network
        async with self._turn():
            records = [stored.record async for _, stored in scan(self._etcd)]
            return await asyncio.to_thread(_computed_views, network, spaces, records, switch)

    async def reach(self, partition: str) -> PartitionReach:
        """The part of the network that a partition uses; NotFound if there is no such partition."""
        network = self._catalogue.network_doc
        spaces = self._catalogue.spaces
        space = next((one for one in spaces if partition in one.partitions()), None)
        if space is None or network is None:
            raise NotFound(
                f"there is no partition {partition[:64]!r}; GET /partitions lists all there are"
            )
        own = Spaces([space.doc], self._catalogue.prefix)
        name = PartitionName.parse(partition)
        async with self._turn():
            found = scan(self._etcd, f"{RECORDS}{space.number:x}/")
            records = [stored.record async for _, stored in found]
            down = self._status.links_down()
            return await asyncio.to_thread(_reach, network, own, records, name, down)

    async def _read(self, switch: str) -> Reading:
        holder = self._fleet.switch_holder(switch)
        stream = self._fleet.southbound[holder] if holder else None
        if stream is None:
            raise Unavailable(f"the southbound process of switch {switch} cannot be reached")
        try:
            answer: FlowsAnswer = await stream.ask(ReadFlows(switch), _READ_TIME)
        except (TimeoutError, StreamClosed, RemoteError) as error:
            raise Unavailable(f"switch {switch} could not be read: {error}") from error
        if answer.reason:
            raise Unavailable(f"switch {switch} could not be read: {answer.reason}")
        return Reading(unpack_entries(answer.entries), answer.counts)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Compute flows one after the other; TooManyRequests if many wait for that already."""
        if self._computations >= _MOST_WAITING:
            raise TooManyRequests(f"{_MOST_WAITING} computations of flows wait already", 2.0)
        self._computations += 1
        try:
            async with self._computing:
                yield
        finally:
            self._computations -= 1

    async def explain(
        self,
        space: LoadedSpace,
        given: Any,
        event: Mapping[str, Any] | None,
        host: str | None,
        charge: Callable[[float], None],
    ) -> Explanation:
        """What a filter leads to, and how an event would travel; None is not explained.

        With a host, also the operations that subscribing to the filter would take. An event needs
        the host that would publish it. BadInput if the filter or the event is not valid,
        UnknownHost if there is no such host. `charge` is called with the processor time in seconds
        that it takes.
        """
        if given is None and event is None:
            raise MissingMember("give a filter or an event to explain", "filter")
        if event is not None and host is None:
            raise MissingMember("name the host that would publish the event", "host")
        version = space.current
        began = self._cpu()
        try:
            keys = version.space.keys(event) if event is not None else None
            found = _indexed(version, given, host) if given is not None else _NOTHING
        finally:
            charge(self._cpu() - began)
        if host is None:
            note = "name a host to see the flows that its subscription would take"
            return replace(found.explanation, note=note)
        network = self._catalogue.network_doc
        self._catalogue.network.topology.host(host)
        assert network
        under = f"{RECORDS}{space.number:x}/"
        question = _Question(network, space.doc, version.version, host)
        tree = min(self._status.usable_trees(), default=0)
        async with self._turn():
            scanned = scan(self._etcd, under, most=MOST_LOOKED_AT)
            records = [stored.record async for _, stored in scanned]
            flows, path, seconds = await asyncio.to_thread(
                self._measured, question, records, found.routed, keys, tree
            )
            charge(seconds)
        note = f"only {MOST_LOOKED_AT} records were looked at; the others may change the answer"
        return replace(
            found.explanation,
            flows=flows,
            note=note if len(records) == MOST_LOOKED_AT else None,
            event=path,
        )

    def _measured(
        self,
        question: "_Question",
        records: list[Record],
        routed: dict[str, Partial],
        keys: Sequence[Key] | None,
        tree: int,
    ) -> tuple[list[TouchedFlow], EventPath | None, float]:
        """The flows that a filter touches, the path of an event, the processor time it took."""
        began = self._cpu()
        flows = _touched(question, records, routed)
        path = _followed(question, records, keys, tree) if keys is not None else None
        return flows, path, self._cpu() - began


class _Question(NamedTuple):
    """What records are looked at for: the network, a version of a space, and a host."""

    network: NetworkDoc
    doc: SpaceDoc
    version: int
    host: str

    def load(self) -> tuple[Network, Spaces, LoadedVersion]:
        """The network and the space, built for use in another thread."""
        spaces = Spaces([self.doc], self.network.pipeline.prefix)
        view = spaces.named(self.doc.name).versions[self.version]
        return Network.of(self.network), spaces, view


class _Indexed(NamedTuple):
    """A filter as the index has it, and its shares of partitions."""

    explanation: Explanation
    routed: dict[str, Partial]


_NOTHING = _Indexed(Explanation([], [], None, [], []), {})


def _indexed(version: LoadedVersion, given: Any, host: str | None) -> _Indexed:
    wanted = parse_filter(version.space, given)
    regions = version.index.regions(wanted)
    routed = version.route(Request(False, _NAME, host or "", regions))
    cells = [
        conjunction_text(version.space, version.index.conjunction(region)) for region in regions
    ]
    unwanted = version.index.unwanted(wanted)
    return _Indexed(Explanation([*map(str, regions)], cells, unwanted, list(routed), []), routed)


class LegNames:
    """The switch or host that each action of a switch leads to, by name."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._known: dict[tuple[str, Action], str | None] = {}

    def to(self, switch: str, action: Action) -> str | None:
        """Where this action leads to; None if nothing is there."""
        key = switch, action
        if key not in self._known:
            self._known[key] = self._find(switch, action)
        return self._known[key]

    def _find(self, switch: str, action: Action) -> str | None:
        if isinstance(action, Output):
            there = self._network.topology.at(switch, action.port)
            if isinstance(there, Link):
                return there.b if there.a == switch else there.a
            return there.id if there else None
        pipeline = self._network.pipeline
        number, hosts = action.group - pipeline.first_group, pipeline.groups.get(switch, ())
        return hosts[number] if 0 <= number < len(hosts) else None


def _computed_views(
    network: NetworkDoc, spaces: Spaces, records: Iterable[Record], switch: str
) -> list[FlowView]:
    entries = Reading(computed(network, spaces, records, switch))
    return flow_views(spaces, LegNames(Network.of(network)), switch, entries)


def _reach(
    network: NetworkDoc,
    spaces: Spaces,
    records: Iterable[Record],
    name: PartitionName,
    down: Iterable[LinkView],
) -> PartitionReach:
    built = Network.of(network)
    space = spaces.numbered(name.space)
    assert space
    version = space.versions[name.version]
    engine = engines(built, version, records, [str(name)])[str(name)]
    names = LegNames(built)
    trees: set[int] = set()
    links: set[Link] = set()
    publishers: set[str] = set()
    subscribers: set[str] = set()
    switches: list[PartitionSwitchView] = []
    for switch, entries in sorted(engine.entries().items()):
        if not entries:
            continue
        switches.append(PartitionSwitchView(switch, len(entries)))
        for entry in entries:
            if entry.match is not None:
                tree = read_match(entry.match, spaces.prefix)[1]
                trees.update(() if tree is None else (tree,))
            if entry.in_port is not None:
                publisher = built.topology.at(switch, entry.in_port)
                publishers.update((publisher.id,) if isinstance(publisher, Host) else ())
            for action in entry.actions:
                if isinstance(action, Output):
                    link = built.topology.at(switch, action.port)
                    links.update((link,) if isinstance(link, Link) else ())
                elif host := names.to(switch, action):
                    subscribers.add(host)
    broken = {(link.a, link.a_port) for link in down}
    return PartitionReach(
        str(name),
        sum(one.entries for one in switches),
        sorted(trees),
        switches,
        [
            LinkView(link.a, link.a_port, link.b, link.b_port, (link.a, link.a_port) not in broken)
            for link in sorted(links, key=lambda link: link.ends)
        ],
        sorted(publishers),
        sorted(subscribers),
    )


def computed(
    network: NetworkDoc, spaces: Spaces, records: Iterable[Record], switch: str
) -> list[FlowEntry]:
    """All entries that a switch should hold for records: a rebuild from nothing."""
    built = Network.of(network)
    by_space: dict[str, list[Record]] = {}
    for record in records:
        by_space.setdefault(record.space, []).append(record)
    entries = list(built.pipeline.base_entries(built.topology, switch))
    for space in spaces:
        for version in space.versions.values():
            for engine in engines(built, version, by_space.get(space.name, ())).values():
                entries += engine.entries([switch]).get(switch, [])
    return entries


def engines(
    network: Network,
    version: LoadedVersion,
    records: Iterable[Record],
    only: Iterable[str] | None = None,
) -> dict[str, Engine]:
    """The partitions of a version with what they have of records; all of them, or some."""
    plan = network.plan(network.scope(version.number, version.version))
    made = {name: Engine(plan) for name in (version.partitions() if only is None else only)}
    loads: dict[str, list[Partial]] = {name: [] for name in made}
    for name, loaded in partials(records, [version]):
        if name in loads:
            loads[name].append(loaded.partial)
    for name, engine in made.items():
        load_usable(engine, loads[name])
    return made


def _touched(
    question: _Question, records: Iterable[Record], routed: dict[str, Partial]
) -> list[TouchedFlow]:
    network, spaces, version = question.load()
    found: list[TouchedFlow] = []
    names = LegNames(network)
    for name, engine in engines(network, version, records, routed).items():
        for batch in engine.decide([routed[name]]).rounds:
            for switch, ops in batch.items():
                found += [
                    TouchedFlow(
                        switch, op.change.value, _flow_view(spaces, names, switch, op.entry, None)
                    )
                    for op in sorted(ops, key=lambda op: _order(op.entry))
                ]
    return found


def _followed(
    question: _Question, records: Iterable[Record], keys: Sequence[Key], tree: int
) -> EventPath:
    network, _, version = question.load()
    chosen = concerning(records, version, version.index.point(keys))
    entries = [engine.entries() for engine in engines(network, version, chosen).values()]
    return follow_event(network, version, question.host, keys, tree, chosen, entries)


def flow_views(spaces: Spaces, names: LegNames, switch: str, read: Reading) -> list[FlowView]:
    """Entries of a switch as users see them, in the order of tables and priorities."""
    counts: Iterable[Counts | None] = read.counts or [None] * len(read)
    ordered = sorted(zip(read, counts, strict=True), key=lambda pair: _order(pair[0]))
    return [_flow_view(spaces, names, switch, entry, counted) for entry, counted in ordered]


def _order(entry: FlowEntry) -> tuple[int, int, int, int, int]:
    address, mask = (entry.match.address, entry.match.mask) if entry.match else (0, 0)
    return entry.table, -entry.priority, entry.in_port or 0, address, mask


def _flow_view(
    spaces: Spaces, names: LegNames, switch: str, entry: FlowEntry, counts: Counts | None
) -> FlowView:
    space = version = tree = region = words = None
    if entry.match is not None:
        try:
            scope, tree, found = read_match(entry.match, spaces.prefix)
            view = spaces.numbered(scope.space)
            if view:
                space, version, region = view.name, scope.version, str(found)
                if known := view.versions.get(scope.version):
                    words = conjunction_text(known.space, known.index.conjunction(found))
        except BadAddress:
            space = None  # a base entry: it matches all of ours
    return FlowView(
        entry.table,
        entry.priority,
        str(entry.match) if entry.match is not None else None,
        entry.in_port,
        [
            f"output:{action.port}" if isinstance(action, Output) else f"group:{action.group:#x}"
            for action in entry.actions
        ],
        entry.goto,
        space,
        version,
        tree if space else None,
        region,
        spaces.partition_of(entry) if space else None,
        words,
        [names.to(switch, action) for action in entry.actions],
        counts.packets if counts else None,
        counts.bytes if counts else None,
    )
