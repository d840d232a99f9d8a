"""Drives the engine with a workload, under the traced maps and, beside them, under a plan's.

The clock is passed in; the only I/O is that of the iterator that the requests come from.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from api.http.schema.plans import PlanIn
from bench.replay.hosts import place_hosts
from bench.replay.maps import MapReplay
from bench.replay.model import ReplayReport, Unusable
from bench.replay.spaces import Indexing, ReplaySpace, planned_owners, under_plan
from configurators.engine.partials import Request
from dzflow.region import Region
from sdn.network.topologies import topology
from spark.traces import SkippedFile
from spark.workload.file import BadWorkload
from spark.workload.model import BEGINS, ENDS, WorkloadAbout, WorkloadRequest

_SHOWN = 5  # names in a notice


class _Record(NamedTuple):
    space: str
    request: Request


class Replayer:
    """Takes requests in their order, and passes what they change on to the maps."""

    def __init__(
        self,
        spaces: Mapping[str, ReplaySpace],
        maps: Sequence[MapReplay],
        hosts: Mapping[str, str],
    ) -> None:
        self.requests: dict[str, int] = {}
        self.unknown_spaces = self.unfit_filters = self.unmatched = 0
        self._spaces = spaces
        self._maps = maps
        self._hosts = hosts
        self._indexing = Indexing(spaces)
        self._active: dict[str, _Record] = {}

    @property
    def unusable(self) -> Unusable:
        """How many requests were not replayed so far."""
        return Unusable(self.unknown_spaces, self.unfit_filters, self.unmatched)

    def active(self, space: str) -> list[Request]:
        """The records of a space that are active now."""
        return [record.request for record in self._active.values() if record.space == space]

    def replay(self, requests: Iterable[WorkloadRequest]) -> None:
        """Replay all requests, and decide everything."""
        for request in requests:
            self.take(request)
        for each in self._maps:
            each.finish()

    def take(self, request: WorkloadRequest) -> None:
        """Replay one request; one that cannot be replayed is counted."""
        if request.space not in self._spaces:
            self.unknown_spaces += 1
            return
        known = self._active.get(request.target_id)
        begins, ends = request.kind in BEGINS, request.kind in ENDS
        if begins == (known is not None):
            self.unmatched += 1
            return
        if ends:
            assert known
            del self._active[request.target_id]
            for each in self._maps:
                each.end(request.space, known.request)
        else:
            regions = self._indexing.regions(request.space, request.filter)
            if regions is None:
                self.unfit_filters += 1
                return
            self._begin_or_update(request, known, regions)
        self.requests[request.kind] = self.requests.get(request.kind, 0) + 1

    def _begin_or_update(
        self, request: WorkloadRequest, known: _Record | None, regions: tuple[Region, ...]
    ) -> None:
        if known is None:
            host = self._hosts.get(request.host)
            if host is None:
                raise BadWorkload(f"the footer of the workload lacks the host {request.host!r}")
            new = Request(request.kind == "advertise", request.target_id, host, regions)
            for each in self._maps:
                each.begin(request.space, new)
        else:
            new = replace(known.request, regions=regions)
            for each in self._maps:
                each.update(request.space, known.request, new)
        self._active[request.target_id] = _Record(request.space, new)


class ReplayOptions(Struct, frozen=True):
    """How a workload is replayed."""

    topology: str
    slice_size: int | None = None  # partials; None: as many as traced slices had on average
    plan: PlanIn | None = None


def replay(
    path: str,
    requests: Iterable[WorkloadRequest],
    about: WorkloadAbout,
    spaces: Mapping[str, ReplaySpace],
    options: ReplayOptions,
    skipped: Sequence[SkippedFile] = (),
    clock: Callable[[], float] = time.thread_time,
) -> ReplayReport:
    """Replay a workload under the traced maps and, if there is a plan, under its map as well.

    Both are driven at the same time, request by request, so that whatever slows the machine down
    slows both.
    """
    plan, network = options.plan, options.topology
    found = topology(network)
    size = options.slice_size or about.slice_size
    hosts = place_hosts(about.hosts, found)
    notices = [*_about_notices(about), *_host_notices(hosts, network)]
    traced = MapReplay(spaces, found, size, clock)
    maps = [traced]
    planned_spaces = spaces
    if plan:
        planned_spaces = under_plan(spaces, plan)
        maps.append(MapReplay(planned_spaces, found, size, clock))
        notices += _plan_notices(plan, spaces[plan.space])
    replayer = Replayer(spaces, maps, hosts)
    replayer.replay(requests)
    report = ReplayReport(
        path,
        network,
        size,
        dict(sorted(replayer.requests.items())),
        about.left_out,
        replayer.unusable,
        traced.figures(about.owners),
        skipped=tuple(skipped),
        notices=tuple(notices),
    )
    if not plan:
        return report
    owners = about.owners
    if owners or plan.assignment:
        before, after = spaces[plan.space], planned_spaces[plan.space]
        owners = planned_owners(owners, before, after, plan)
    return replace(report, planned=maps[1].figures(owners), change=traced.change_to(maps[1]))


def _about_notices(about: WorkloadAbout) -> list[str]:
    found = []
    if about.first_seen:
        found.append(
            f"{about.first_seen:,} changes are of records that began before the traces: each of"
            " them begins its record here."
        )
    if about.moved:
        found.append(
            f"{about.moved:,} requests came before an earlier request of the same record, by their"
            " clocks: they are replayed right after it."
        )
    if about.total and not about.owners:
        found.append("The traces name no owners (mode sea has none): there are no configurators.")
    return found


def _host_notices(hosts: Mapping[str, str], network: str) -> list[str]:
    elsewhere = [host for host, place in hosts.items() if host != place]
    if not elsewhere:
        return []
    named = ", ".join(elsewhere[:_SHOWN]) + (", …" if len(elsewhere) > _SHOWN else "")
    return [
        f"{network} lacks {len(elsewhere):,} of the {len(hosts):,} hosts ({named}): other hosts"
        " stand for them, so flow entries and operations can be compared with each other only. Give"
        " the network of the service with --topology."
    ]


def _plan_notices(plan: PlanIn, space: ReplaySpace) -> list[str]:
    if plan.number == space.map_number:
        return []
    return [
        f"The plan was made for map number {plan.number} of {plan.space}, and the traces end with"
        f" number {space.map_number}."
    ]
