"""Adds and changes switches and links of a discovered network as an operator declares them. Pure.

A switch that is declared before it is connected counts as lost, and so does a link until both its
switches are connected, or if it is to carry probes, until it does: trees grow to them when they are
there.
"""

from collections.abc import Collection

from msgspec.structs import replace

from configurators.state.discovered import with_grown_trees
from configurators.state.network import in_order, topology_of
from configurators.state.removal import StillNeeded, check_discovered
from configurators.store.model import Lost, NetworkDoc
from dzflow.errors import BadInput
from sdn.network.switch_limits import SwitchLimits
from sdn.network.topologies import MAX_SWITCHES
from sdn.network.topology import Host, Link, Switch, Topology, TopologyError
from sdn.tables.pipeline import OutOfGroups, OutOfTables, Pipeline


class BadDeclaration(BadInput):
    """A switch or link that the network cannot have; `field` is the member at fault."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def with_switch(
    doc: NetworkDoc,
    id: str,
    dpid: int | None,
    limits: SwitchLimits,
    label: str,
    connected: Collection[str] = (),
) -> NetworkDoc:
    """The network with a switch, new or changed; without `dpid`, the switch keeps its own.

    BadDeclaration if it does not fit. StillNeeded if it can change in this way only when it is not
    among the `connected` switches, or not at all.
    """
    check_discovered(doc)
    known = next((switch for switch in doc.switches if switch.id == id), None)
    if dpid is None and known is None:
        raise BadDeclaration(f"switch {id[:64]!r} is new, so its datapath id is needed", "dpid")
    dpid = known.dpid if dpid is None and known else dpid
    for other in doc.switches:
        if other.dpid == dpid and other.id != id:
            raise BadDeclaration(
                f"switch {other.id} has datapath id {dpid:#x} already; a switch keeps its id: give"
                " it a label, or remove it while it is not connected",
                "dpid",
            )
    if known is None and len(doc.switches) >= MAX_SWITCHES:
        raise BadDeclaration(f"there are {len(doc.switches)} switches already, the most", "id")
    if known and dpid != known.dpid and id in connected:
        raise StillNeeded(
            f"switch {id} is connected with datapath id {known.dpid:#x}; disconnect it, before"
            " another one takes its place"
        )
    assert dpid is not None
    switch = Switch(id, dpid, limits, label)
    if known is not None:
        _check_numbers(doc.pipeline, known, switch)
    others = [one for one in doc.switches if one.id != id]
    try:
        topology = topology_of(replace(doc, switches=(*others, switch)))
        pipeline = doc.pipeline.extended(topology)
    except TopologyError as error:
        raise BadDeclaration(str(error), "dpid") from None
    except OutOfTables as error:
        raise BadDeclaration(str(error), "tables") from None
    except OutOfGroups as error:
        raise BadDeclaration(str(error), "groups") from None
    away = {*doc.lost.switches, *(() if known else (id,))}
    lost = Lost(tuple(s.id for s in topology.switches if s.id in away), doc.lost.links)
    changed = replace(doc, switches=topology.switches, pipeline=pipeline, lost=lost)
    return changed if known else with_grown_trees(changed)


def with_link(
    doc: NetworkDoc, link: Link, *, probed: bool, connected: Collection[str] = ()
) -> NetworkDoc:
    """The network with a link, new or changed; if it is not `probed`, discovery cannot find it.

    BadDeclaration if it does not fit, OutOfTables if there is no room for it.
    """
    check_discovered(doc)
    before = topology_of(doc)
    _check_ports(before, link)
    new = link not in doc.links
    links = (*doc.links, link) if new else doc.links
    hidden = {*doc.unprobed, link} - ({link} if probed else set())
    is_there = not new or (not probed and {link.a, link.b} <= set(connected))
    away = {*doc.lost.links, *(() if is_there else (link,))}
    try:
        topology = topology_of(replace(doc, links=links))
    except TopologyError as error:
        raise BadDeclaration(str(error), "id") from None
    changed = replace(
        doc,
        links=topology.links,
        pipeline=doc.pipeline.extended(topology),
        lost=Lost(doc.lost.switches, tuple(one for one in topology.links if one in away)),
        unprobed=in_order(hidden),
        withdrawn=tuple(one for one in doc.withdrawn if one != link),
    )
    return with_grown_trees(changed)


def _check_ports(topology: Topology, link: Link) -> None:
    """BadDeclaration if something else is at a port of a link, or there is no such switch."""
    for switch, port in link.ends:
        try:
            at = topology.at(switch, port)
        except TopologyError as error:
            raise BadDeclaration(f"link {link}: {error}", "id") from None
        if at is not None and at != link:
            name = f"host {at.id}" if isinstance(at, Host) else f"link {at}"
            raise BadDeclaration(
                f"link {link}: port {port} of {switch} is taken by {name}; remove that first", "id"
            )


def _check_numbers(pipeline: Pipeline, before: Switch, after: Switch) -> None:
    """StillNeeded if entries of a switch would have to move to other tables or groups."""
    kinds = (
        ("tables", pipeline.tables, pipeline.first_table),
        ("groups", pipeline.groups, pipeline.first_group),
    )
    for name, taken, default in kinds:
        old, new = getattr(before.limits, name), getattr(after.limits, name)
        begin, now = (old[0] if old else default), (new[0] if new else default)
        if begin != now and taken.get(before.id):
            raise StillNeeded(
                f"{name}: those of switch {before.id} cannot begin with another number while links"
                " or hosts have some; remove the switch, and declare it again"
            )
