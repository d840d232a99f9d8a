"""Flow entries, computed from the records or read from a switch; and what a filter leads to."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Literal

from configurators.engine.engine import Engine
from configurators.engine.partials import Partial, Request
from configurators.state.loading import load_usable, partials
from configurators.state.network import Network
from configurators.state.spaces import LoadedSpace, LoadedVersion, Spaces
from configurators.store.etcd.client import Etcd
from configurators.store.keys import RECORDS
from configurators.store.model import NetworkDoc, Record, SpaceDoc
from configurators.streams.messages import Flows as FlowsAnswer
from configurators.streams.messages import ReadFlows
from configurators.streams.packing import unpack_entries
from configurators.streams.stream import RemoteError, StreamClosed
from dispatcher.errors import TooManyRequests, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.reports.shape_usage import count_shapes
from dispatcher.reports.status import Status
from dispatcher.requests.writing.stored_records import MOST_LOOKED_AT, scan
from dispatcher.views import Explanation, FlowView, ShapesUsage, TouchedFlow
from dzflow.address import BadAddress, read_match
from dzflow.filters import conjunction_text, parse_filter
from sdn.flows import FlowEntry, Output

Source = Literal["cp", "dp"]

_READ_TIME = 60.0
_MOST_WAITING = 8  # computations of flows, in progress or waiting; each may take seconds
_MOST_COUNTED = 5_000  # records whose shapes are counted; 1.3 s of processor time were measured
_NAME = "explained"


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
            return flow_views(spaces, await self._read(switch))
        network = self._catalogue.network_doc
        assert network
        async with self._turn():
            records = [stored.record async for _, stored in scan(self._etcd)]
            entries = await asyncio.to_thread(computed, network, spaces, records, switch)
        return flow_views(spaces, entries)

    async def _read(self, switch: str) -> list[FlowEntry]:
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
        return unpack_entries(answer.entries)

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
        self, space: LoadedSpace, given: Any, host: str | None, charge: Callable[[float], None]
    ) -> Explanation:
        """What a filter leads to; with a host, also the operations that subscribing would take.

        BadInput if the filter is not valid, UnknownHost if there is no such host. `charge` is
        called with the processor time in seconds that it takes.
        """
        version = space.current
        began = self._cpu()
        try:
            wanted = parse_filter(version.space, given)
            regions = version.index.regions(wanted)
            routed = version.route(Request(False, _NAME, host or "", regions))
            unwanted = version.index.unwanted(wanted)
        finally:
            charge(self._cpu() - began)
        flows: list[TouchedFlow] = []
        note: str | None = "name a host to see the flows that its subscription would take"
        if host is not None:
            note = None
            network = self._catalogue.network_doc
            self._catalogue.network.topology.host(host)
            assert network
            under = f"{RECORDS}{space.number:x}/"
            async with self._turn():
                found = scan(self._etcd, under, most=MOST_LOOKED_AT)
                records = [stored.record async for _, stored in found]
                flows, seconds = await asyncio.to_thread(
                    self._measured, network, space.doc, version.version, records, routed
                )
                charge(seconds)
            if len(records) == MOST_LOOKED_AT:
                note = f"only {MOST_LOOKED_AT} records were looked at; there may be fewer flows"
        return Explanation(
            [str(region) for region in regions],
            [
                conjunction_text(version.space, version.index.conjunction(region))
                for region in regions
            ],
            unwanted,
            list(routed),
            flows,
            note,
        )

    async def shape_usage(self, space: LoadedSpace) -> ShapesUsage:
        """How the active subscriptions of a space use the shapes of its index."""
        async with self._turn():
            found = scan(self._etcd, f"{RECORDS}{space.number:x}/", most=_MOST_COUNTED)
            records = [stored.record async for _, stored in found]
            note = None
            if len(records) == _MOST_COUNTED:
                note = f"only {_MOST_COUNTED} records were looked at"
            return await asyncio.to_thread(count_shapes, space, records, note)

    def _measured(self, *about: Any) -> tuple[list[TouchedFlow], float]:
        """The flows that a filter touches, and the processor time that this thread took."""
        began = self._cpu()
        return _touched(*about), self._cpu() - began


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
    network: NetworkDoc,
    doc: SpaceDoc,
    version: int,
    records: Iterable[Record],
    routed: dict[str, Partial],
) -> list[TouchedFlow]:
    spaces = Spaces([doc], network.pipeline.prefix)
    view = spaces.named(doc.name).versions[version]
    found: list[TouchedFlow] = []
    for name, engine in engines(Network.of(network), view, records, routed).items():
        for batch in engine.decide([routed[name]]).rounds:
            for switch, ops in batch.items():
                shown = flow_views(spaces, [op.entry for op in ops])
                found += [
                    TouchedFlow(switch, op.change.value, flow)
                    for op, flow in zip(ops, shown, strict=True)
                ]
    return found


def flow_views(spaces: Spaces, entries: Iterable[FlowEntry]) -> list[FlowView]:
    """Entries as users see them, in the order of tables and priorities."""
    return [_flow_view(spaces, entry) for entry in sorted(entries, key=_order)]


def _order(entry: FlowEntry) -> tuple[int, int, int, int, int]:
    address, mask = (entry.match.address, entry.match.mask) if entry.match else (0, 0)
    return entry.table, -entry.priority, entry.in_port or 0, address, mask


def _flow_view(spaces: Spaces, entry: FlowEntry) -> FlowView:
    space = version = tree = region = None
    if entry.match is not None:
        try:
            scope, tree, found = read_match(entry.match, spaces.prefix)
            view = spaces.numbered(scope.space)
            if view:
                space, version, region = view.name, scope.version, str(found)
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
    )
