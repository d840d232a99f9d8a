"""How an event would travel through the network, by the entries that switches should hold; pure."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address

from configurators.state.loading import counts
from configurators.state.network import Network
from configurators.state.spaces import LoadedVersion
from configurators.store.model import Record
from configurators.streams.packing import unpack_regions
from dispatcher.views import EventPath, HopTarget, HopView
from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK, parse_filter
from dzflow.intervals import Key
from sdn.network.topology import Host, Link, Topology, natural_key
from sdn.tables.flows import Change, FlowEntry, FlowOp
from sdn.tables.simulate import Hop, SimulatedNetwork

_log = logging.getLogger(__name__)


def concerning(records: Iterable[Record], version: LoadedVersion, point: int) -> list[Record]:
    """The records that decide about entries that match an event.

    These are all advertisements, and subscriptions with a region that holds the event. Entries of
    other subscriptions do not match it, and cover none that do.
    """
    return [
        record
        for record in records
        if counts(record)
        and (record.kind == "advertisement" or _holds(record, version.version, point))
    ]


def _holds(record: Record, version: int, point: int) -> bool:
    packed = [record.regions, *([record.next.regions] if record.next else [])]
    return any(
        region.holds(point)
        for regions in packed
        if version in regions
        for region in unpack_regions(regions[version])
    )


def follow_event(
    network: Network,
    version: LoadedVersion,
    publisher: str,
    keys: Sequence[Key],
    tree: int,
    records: Iterable[Record],
    entries: Iterable[Mapping[str, Iterable[FlowEntry]]],
) -> EventPath:
    """The way of an event from its publisher, given its keys.

    `records` are those that concern it, and `entries` are what they lead to on each switch, by
    partition.
    """
    topology = network.topology
    address = network.scope(version.number, version.version).event(version.index.point(keys), tree)
    simulated = SimulatedNetwork(topology, network.pipeline)
    for by_switch in entries:
        for switch, held in by_switch.items():
            for entry in held:
                if entry.match is not None and entry.match.holds(address):
                    simulated.switches[switch].apply(FlowOp(Change.ADD, entry))
    journey = simulated.send(publisher, address)
    admitted = journey.hops[0].admitted
    delivered = set(journey.hosts)
    mine = [r for r in records if r.kind == "advertisement" and r.host == publisher]
    theirs = [r for r in records if r.kind == "subscription" and r.host != publisher]
    wanting = {r.host for r in theirs if _matches(version, r.filter, r.id, keys)}
    # While a filter is replaced, its host also gets what the new one wants.
    soon = {r.host for r in theirs if r.next and _matches(version, r.next.filter, r.id, keys)}
    return EventPath(
        str(IPv6Address(address)),
        tree,
        admitted,
        None if admitted else _refusal(topology.host(publisher), version.space.name, len(mine)),
        [_hop_view(topology, hop) for hop in journey.hops],
        _in_order(delivered),
        _in_order(delivered - wanting - soon),
        _in_order(wanting - delivered) if admitted else [],
    )


def _refusal(host: Host, space: str, advertisements: int) -> str:
    place = f"switch {host.switch} drops it at port {host.port}"
    if not advertisements:
        return f"{place}: host {host.id} has no active advertisement in space {space!r}"
    return (
        f"{place}: none of the {advertisements} active advertisements of host {host.id} in space"
        f" {space!r} includes it"
    )


def _matches(version: LoadedVersion, given: object, id: str, keys: Sequence[Key]) -> bool:
    try:
        return parse_filter(version.space, given, STORED_WORK).matches(keys)
    except BadInput as error:
        _log.error("the filter of %s cannot be used: %s", id, error)
        return False


def _hop_view(topology: Topology, hop: Hop) -> HopView:
    came = topology.at(hop.switch, hop.in_port)
    targets = []
    for port in hop.out_ports:
        far = topology.at(hop.switch, port)
        if isinstance(far, Host):
            targets.append(HopTarget(port, host=far.id))
        elif far is not None:
            targets.append(HopTarget(port, switch=_other_end(far, hop.switch, port)))
    assert came is not None
    sender = came.id if isinstance(came, Host) else _other_end(came, hop.switch, hop.in_port)
    return HopView(hop.switch, hop.in_port, sender, targets)


def _other_end(link: Link, switch: str, port: int) -> str:
    one, other = link.ends
    return other[0] if one == (switch, port) else one[0]


def _in_order(hosts: Iterable[str]) -> list[str]:
    return sorted(hosts, key=natural_key)
