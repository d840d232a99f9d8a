"""Where the network is not what it should be, by what southbound processes have found. Pure."""

from collections.abc import Collection, Iterable, Iterator

from configurators.store.model import NetworkDoc
from configurators.streams.messages import FoundNetwork
from dispatcher.views import DifferenceView
from sdn.network.findings import End
from sdn.network.topology import Host, Link, Topology


def find_differences(
    doc: NetworkDoc, topology: Topology, up: Collection[str], reports: Iterable[FoundNetwork]
) -> list[DifferenceView]:
    """All differences between a network and what was found; none without reports.

    `up` has the switches that are connected: of others, nothing can be found.
    """
    reports = list(reports)
    if not reports:
        return []
    found = {link for report in reports for link in report.links}
    crossed = {end: origin for report in reports for end, origin in report.crossed}
    refused = {dpid: why for report in reports for dpid, why in report.refused.items()}
    absent = {end for report in reports for end in report.absent}
    return [
        *_crossed(topology, crossed, doc.discovered),
        *_missing(doc, up, found, absent | crossed.keys() | set(crossed.values())),
        *_unexpected(doc, found),
        *_absent(topology, absent),
        *_refused(doc, refused),
    ]


def _crossed(
    topology: Topology, crossed: dict[End, End], discovered: bool
) -> Iterator[DifferenceView]:
    """Two ports that a cable joins, one of which should lead elsewhere."""
    for end, origin in sorted(crossed.items()):
        if crossed.get(origin) == end and origin < end:
            continue  # told already, from the other end
        should = "; ".join(filter(None, (_purpose(topology, one) for one in (end, origin))))
        if not should:
            should = "a host was heard at one of them"
            if discovered:
                name = f"{_port(end)}-{_port(origin)}"
                should += f"; if there is none, declare the link: `dzflow topology declare {name}`"
        at_host = any(isinstance(_at(topology, one), Host) for one in (end, origin))
        yield DifferenceView(
            "host-at-link" if at_host else "crossed",
            f"a cable joins {_port(end)} and {_port(origin)}, but {should}",
            *end,
        )


def _missing(
    doc: NetworkDoc, up: Collection[str], found: Collection[Link], told: Collection[End]
) -> Iterator[DifferenceView]:
    """Links that are not found, but could be; without those of which a port is told to be wrong."""
    for link in doc.links:
        if (
            link in doc.unprobed
            or link in found
            or not {link.a, link.b} <= set(up)
            or not set(told).isdisjoint(link.ends)
        ):
            continue
        one, other = link.ends
        text = f"no cable is found between {_port(one)} and {_port(other)}"
        yield DifferenceView("missing", text, *one)


def _unexpected(doc: NetworkDoc, found: Collection[Link]) -> Iterator[DifferenceView]:
    known = set(doc.links)
    for link in sorted(set(found) - known, key=str):
        one, other = link.ends
        text = f"a cable joins {_port(one)} and {_port(other)}, which the network does not have"
        yield DifferenceView("unexpected", text, *one)


def _absent(topology: Topology, absent: Iterable[End]) -> Iterator[DifferenceView]:
    for end in sorted(absent):
        if purpose := _purpose(topology, end):
            text = f"switch {end[0]} has no port {end[1]}: {purpose}"
            yield DifferenceView("no-port", text, *end)


def _refused(doc: NetworkDoc, refused: dict[int, str]) -> Iterator[DifferenceView]:
    names = {switch.dpid: switch.id for switch in doc.switches}
    for dpid, why in sorted(refused.items()):
        text = f"a switch with datapath id {dpid:#x} was refused: {why}"
        yield DifferenceView("refused", text, names.get(dpid))


def _at(topology: Topology, end: End) -> Link | Host | None:
    known = any(switch.id == end[0] for switch in topology.switches)
    return topology.at(*end) if known else None


def _purpose(topology: Topology, end: End) -> str:
    """What a port should lead to; empty if nothing is known of it."""
    at = _at(topology, end)
    if isinstance(at, Host):
        return f"host {at.id} is declared at {_port(end)}"
    if isinstance(at, Link):
        one, other = at.ends
        return f"{_port(end)} should lead to {_port(other if end == one else one)}"
    return ""


def _port(end: End) -> str:
    return f"{end[0]}:{end[1]}"
