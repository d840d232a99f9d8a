"""Flow entries, computed from records or read from a switch; what filters and events lead to."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec.structs import replace

from configurators.engine.partials import Partial
from configurators.state.spaces import LoadedSpace, Spaces
from configurators.store.etcd.client import Etcd
from configurators.store.keys import LETTERS, RECORDS, PartitionName
from configurators.store.model import Record
from configurators.streams.messages import Flows as FlowsAnswer
from configurators.streams.messages import ReadFlows
from configurators.streams.packing import unpack_entries
from configurators.streams.stream import RemoteError, StreamClosed
from dispatcher.errors import NotFound, TooManyRequests, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.reports.flow_tables import (
    NOTHING,
    LegNames,
    Question,
    computed_views,
    flow_views,
    followed,
    indexed,
    reach_of,
    touched,
)
from dispatcher.reports.shape_usage import count_shapes
from dispatcher.reports.status import Status
from dispatcher.requests.writing.stored_records import MOST_LOOKED_AT, scan
from dispatcher.views import (
    EventPath,
    Explanation,
    FlowView,
    PartitionReach,
    ShapesUsage,
    TouchedFlow,
)
from dzflow.attribute import FieldError
from dzflow.intervals import Key
from sdn.tables.readings import Reading

Source = Literal["cp", "dp"]

_READ_TIME = 60.0
_MOST_WAITING = 8  # computations of flows, in progress or waiting; each may take seconds
_MOST_COUNTED = 5_000  # records whose shapes are counted; 1.3 s of processor time were measured


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
            return await asyncio.to_thread(computed_views, network, spaces, records, switch)

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
            found = scan(self._etcd, f"{RECORDS}{space.number:x}/", most=MOST_LOOKED_AT)
            records = [stored.record async for _, stored in found]
            down = self._status.links_down()
            reach = await asyncio.to_thread(reach_of, network, own, records, name, down)
        return replace(reach, note=_partial_note(len(records)))

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
        """What a filter leads to, and how an event would travel; what is None is left out.

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
            found = indexed(version, given, host) if given is not None else NOTHING
        finally:
            charge(self._cpu() - began)
        if host is None:
            note = "name a host to see the flows that its subscription would take"
            return replace(found.explanation, note=note)
        network = self._catalogue.network_doc
        self._catalogue.network.topology.host(host)
        assert network
        under = f"{RECORDS}{space.number:x}/"
        question = Question(network, space.doc, version.version, host)
        tree = min(self._status.usable_trees(), default=0)
        async with self._turn():
            scanned = scan(self._etcd, under, most=MOST_LOOKED_AT)
            records = [stored.record async for _, stored in scanned]
            flows, path, seconds = await asyncio.to_thread(
                self._measured, question, records, found.routed, keys, tree
            )
            charge(seconds)
        return replace(found.explanation, flows=flows, note=_partial_note(len(records)), event=path)

    async def shape_usage(self, space: LoadedSpace) -> ShapesUsage:
        """How the active subscriptions of a space use the shapes of its index."""
        async with self._turn():
            under = f"{RECORDS}{space.number:x}/{LETTERS['subscription']}"
            found = scan(self._etcd, under, most=_MOST_COUNTED)
            records = [stored.record async for _, stored in found]
            note = None
            if len(records) == _MOST_COUNTED:
                note = f"only {_MOST_COUNTED} records were looked at"
            return await asyncio.to_thread(count_shapes, space, records, note)

    def _measured(
        self,
        question: Question,
        records: list[Record],
        routed: dict[str, Partial],
        keys: Sequence[Key] | None,
        tree: int,
    ) -> tuple[list[TouchedFlow], EventPath | None, float]:
        """The flows that a filter touches, the path of an event, the processor time it took."""
        began = self._cpu()
        flows = touched(question, records, routed)
        path = followed(question, records, keys, tree) if keys is not None else None
        return flows, path, self._cpu() - began


def _partial_note(looked_at: int) -> str | None:
    """What to say if there may be more records than were looked at."""
    if looked_at < MOST_LOOKED_AT:
        return None
    return f"only {MOST_LOOKED_AT} records were looked at; the others may change the answer"
