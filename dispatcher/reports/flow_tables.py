"""The entries that records need: as switches should hold them, in words, and where they lead."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from configurators.engine.engine import Engine
from configurators.engine.partials import Partial, Request
from configurators.state.loading import load_usable, partials
from configurators.state.network import Network
from configurators.state.spaces import LoadedVersion, Spaces
from configurators.store.keys import PartitionName
from configurators.store.model import NetworkDoc, Record, SpaceDoc
from dispatcher.reports.event_paths import concerning, follow_event
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
from dzflow.filters import conjunction_text, parse_filter
from dzflow.intervals import Key
from sdn.network.topology import Host, Link
from sdn.tables.flows import NORMAL, Action, FlowEntry, Output
from sdn.tables.readings import Counts, Reading

_REQUEST = "explained"  # the id of a request that is only looked at


class Question(NamedTuple):
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


class Indexed(NamedTuple):
    """A filter as the index has it, and its shares of partitions."""

    explanation: Explanation
    routed: dict[str, Partial]


NOTHING = Indexed(Explanation([], [], None, [], []), {})


def indexed(version: LoadedVersion, given: Any, host: str | None) -> Indexed:
    """A filter of a host, indexed and routed; BadInput if it is not valid."""
    wanted = parse_filter(version.space, given)
    regions = version.index.regions(wanted)
    routed = version.route(Request(False, _REQUEST, host or "", regions))
    cells = [
        conjunction_text(version.space, version.index.conjunction(region)) for region in regions
    ]
    unwanted = version.index.unwanted(wanted)
    return Indexed(Explanation([*map(str, regions)], cells, unwanted, list(routed), []), routed)


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
        number = action.group - pipeline.groups_of(switch).start
        hosts = pipeline.groups.get(switch, ())
        return hosts[number] if 0 <= number < len(hosts) else None


def computed_views(
    network: NetworkDoc, spaces: Spaces, records: Iterable[Record], switch: str
) -> list[FlowView]:
    """The entries that a switch should hold for records, as users see them."""
    entries = Reading(computed(network, spaces, records, switch))
    return flow_views(spaces, LegNames(Network.of(network)), switch, entries)


def reach_of(
    network: NetworkDoc,
    spaces: Spaces,
    records: Iterable[Record],
    name: PartitionName,
    down: Iterable[LinkView],
) -> PartitionReach:
    """The part of the network that the records of a partition use; `down` links are marked."""
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


def touched(
    question: Question, records: Iterable[Record], routed: dict[str, Partial]
) -> list[TouchedFlow]:
    """The operations that a request with these partials would take, beside records."""
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


def followed(
    question: Question, records: Iterable[Record], keys: Sequence[Key], tree: int
) -> EventPath:
    """The way of an event through the tables that records need."""
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


def _action_text(action: Action) -> str:
    if not isinstance(action, Output):
        return f"group:{action.group:#x}"
    return "output:normal" if action.port == NORMAL else f"output:{action.port}"


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
        [_action_text(action) for action in entry.actions],
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
