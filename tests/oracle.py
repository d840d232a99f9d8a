"""Which hosts must get an event, and which entries switches must hold, by the definitions."""

from collections.abc import Iterable, Mapping

from configurators.engine.partials import Request
from configurators.engine.partition_map import PartitionMap
from dzflow.address import Scope
from dzflow.region import Region
from sdn.network.topology import Leg, Topology, ToSwitch
from sdn.network.trees import Tree, legs
from sdn.tables.flows import Action, FlowEntry, Output, ToGroup
from sdn.tables.pipeline import ADMIT_PRIORITY, MATCH_PRIORITY, Pipeline


def receivers(active: Iterable[Request], publisher: str, point: int) -> set[str]:
    """The hosts that must get an event, and no others may: those with a region that holds it.

    No host may get an event that its publisher does not advertise.
    """
    active = list(active)
    advertised = any(
        region.holds(point)
        for request in active
        if request.advertised and request.host == publisher
        for region in request.regions
    )
    if not advertised:
        return set()
    return {
        request.host
        for request in active
        if not request.advertised and request.host != publisher
        for region in request.regions
        if region.holds(point)
    }


def expected_entries(
    active: Iterable[Request],
    partition_map: PartitionMap,
    topology: Topology,
    trees: Mapping[int, Tree],
    pipeline: Pipeline,
    scope: Scope,
) -> dict[str, set[FlowEntry]]:
    """The entries of each switch, from the definitions of contributions and plans."""
    active = [request for request in active if request.host in {h.id for h in topology.hosts}]
    offers = [(r.host, region) for r in active if r.advertised for region in r.regions]
    found: dict[str, set[FlowEntry]] = {switch.id: set() for switch in topology.switches}
    for partition in partition_map.leaves():
        _admission(active, partition_map, partition, topology, pipeline, scope, found)
        for number, tree in trees.items():
            contributed: dict[str, set[tuple[Region, Leg]]] = {s: set() for s in found}
            for request in active:
                if request.advertised:
                    continue
                for region in _parts(partition_map, partition, request):
                    for publisher, offered in offers:
                        if publisher != request.host and offered.overlaps(region):
                            way = legs(topology, tree, publisher, request.host)
                            for switch, leg in way:
                                contributed[switch].add((region, leg))
            for switch, pairs in contributed.items():
                table = _legs_table if pipeline.plan == "legs" else _lpm_table
                found[switch] |= table(switch, pairs, pipeline, scope, number)
    return found


def _parts(partition_map: PartitionMap, partition: str, request: Request) -> set[Region]:
    return {
        part
        for region in request.regions
        for name, part in partition_map.parts(region)
        if name == partition
    }


def _admission(
    active: list[Request],
    partition_map: PartitionMap,
    partition: str,
    topology: Topology,
    pipeline: Pipeline,
    scope: Scope,
    found: dict[str, set[FlowEntry]],
) -> None:
    for host in topology.hosts:
        offered = {
            region
            for request in active
            if request.advertised and request.host == host.id
            for region in _parts(partition_map, partition, request)
        }
        for region in offered:
            if not any(other != region and other.covers(region) for other in offered):
                found[host.switch].add(
                    FlowEntry(
                        pipeline.admission_table(host.switch),
                        ADMIT_PRIORITY,
                        scope.match(region),
                        goto=pipeline.forward_table(host.switch),
                        in_port=host.port,
                    )
                )


def _legs_table(
    switch: str, pairs: set[tuple[Region, Leg]], pipeline: Pipeline, scope: Scope, tree: int
) -> set[FlowEntry]:
    entries = set()
    for region, leg in pairs:
        regions = {other for other, same in pairs if same == leg}
        if not any(other != region and other.covers(region) for other in regions):
            table = pipeline.table(switch, leg)
            action = _action(pipeline, switch, leg)
            match = scope.match(region, tree)
            entries.add(FlowEntry(table, MATCH_PRIORITY, match, (action,), table + 1))
    return entries


def _lpm_table(
    switch: str, pairs: set[tuple[Region, Leg]], pipeline: Pipeline, scope: Scope, tree: int
) -> set[FlowEntry]:
    sent = {
        region: frozenset(leg for other, leg in pairs if other.covers(region))
        for region, _ in pairs
    }
    entries: dict[Region, frozenset[Leg]] = {}
    for region in sorted(sent, key=lambda r: r.size):
        coverers = [other for other in entries if other.covers(region)]
        nearest = max(coverers, key=lambda r: r.size, default=None)
        if nearest is None or entries[nearest] != sent[region]:
            entries[region] = sent[region]
    return {
        FlowEntry(
            pipeline.forward_table(switch),
            MATCH_PRIORITY + region.size,
            scope.match(region, tree),
            tuple(sorted((_action(pipeline, switch, leg) for leg in out), key=repr)),
        )
        for region, out in entries.items()
    }


def _action(pipeline: Pipeline, switch: str, leg: Leg) -> Action:
    if isinstance(leg, ToSwitch):
        return Output(leg.port)
    return ToGroup(pipeline.groups_of(switch).start + pipeline.groups[switch].index(leg.host))
