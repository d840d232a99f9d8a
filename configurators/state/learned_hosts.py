"""Decides which hosts that discovery has heard may join the network. Pure.

A host that is heard never takes anything from one that is declared: neither its place (switch and
port), nor its MAC, address or id. So whatever a stranger says on its own cable, the hosts of the
network stay as they are.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from ipaddress import IPv6Address
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from configurators.state.network import topology_of, with_host
from configurators.store.model import NetworkDoc
from dzflow.errors import BadInput
from sdn.network.findings import End, SeenHost
from sdn.network.topology import Host, Link, Switch, Topology
from sdn.tables.pipeline import OutOfGroups, OutOfTables, Pipeline

HostMode = Literal["declared", "propose", "accept"]
"""Where hosts come from: declared only; also proposed to operators; or accepted by themselves."""

MAX_HOSTS = 10_000
"""Hosts of a network, beyond which none joins by itself."""


class HostTaken(BadInput):
    """A host that was heard has something that a declared one has."""


class Proposal(Struct, frozen=True):
    """A host that may join, since when it is where it is (seconds since 1970), and what is odd.

    A `problem` keeps it from joining. With a `doubt`, it joins only if an operator accepts it.
    """

    host: Host
    since: float
    problem: str | None = None
    doubt: str | None = None


def find_proposals(
    doc: NetworkDoc,
    seen: Iterable[SeenHost],
    links: Iterable[Link] = (),
    crossed: Collection[End] = (),
) -> list[Proposal]:
    """All hosts that were heard at free ports, by id.

    A host that several processes have heard is where it came last. `links` were found, `crossed`
    are ports at which probes arrive, though they lead to no switch.
    """
    latest: dict[str, SeenHost] = {}
    for one in seen:
        known = latest.get(one.host.id)
        if known is None or _order(known) < _order(one):
            latest[one.host.id] = one
    topology, places = topology_of(doc), {end for link in links for end in link.ends}
    switches = {switch.id: switch for switch in doc.switches}
    free = [
        one
        for one in latest.values()
        if one.host.switch in switches
        and topology.at(one.host.switch, one.host.port) is None
        and (one.host.switch, one.host.port) not in places
    ]
    at_port = Counter((one.host.switch, one.host.port) for one in free)
    by_address: defaultdict[str, list[str]] = defaultdict(list)
    for one in free:
        by_address[_address(one.host)].append(one.host.id)
    taken = _Taken(doc)
    room = {name: _fit(doc.pipeline, switches[name], ()) for name in {o.host.switch for o in free}}
    found = []
    for one in sorted(free, key=lambda one: one.host.id):
        host, end = one.host, (one.host.switch, one.host.port)
        problem, doubt = taken.why(host), None
        if problem is None and not room[host.switch]:
            problem = f"switch {host.switch} has no table or group left for another host"
        same = [id for id in by_address[_address(host)] if id != host.id]
        if at_port[end] > 1:
            doubt = f"{at_port[end]} hosts are heard at this port, and one can be there"
        elif same and host.ipv6:
            doubt = f"it announces the same address as {', '.join(sorted(same)[:5])}"
        elif end in crossed:
            doubt = "probes of a switch arrive at this port; check the cables"
        found.append(Proposal(host, one.since, problem, doubt))
    return found


def with_learned(doc: NetworkDoc, host: Host) -> NetworkDoc:
    """The network with a host that was heard, under the id that it has now.

    HostTaken if it would take something from another one; TopologyError or OutOfTables if it does
    not fit.
    """
    if problem := _Taken(doc).why(host):
        raise HostTaken(f"host {host.id}: {problem}")
    end = (host.switch, host.port)
    for other in doc.hosts:
        if (other.switch, other.port) == end:
            raise HostTaken(f"host {host.id}: host {other.id} is declared at this port")
    return with_host(doc, host)


def with_accepted(doc: NetworkDoc, proposals: Iterable[Proposal]) -> NetworkDoc:
    """The network with all hosts that may join by themselves, as far as they fit."""
    new: defaultdict[str, list[Host]] = defaultdict(list)
    left = MAX_HOSTS - len(doc.hosts)
    for one in proposals:
        if one.problem is None and one.doubt is None and left > 0:
            new[one.host.switch].append(one.host)
            left -= 1
    switches = {switch.id: switch for switch in doc.switches}
    fitting: list[Host] = []
    for name, hosts in new.items():
        while hosts and not _fit(doc.pipeline, switches[name], hosts):
            hosts.pop()
        fitting += hosts
    if not fitting:
        return doc
    hosts = [*doc.hosts, *fitting]
    topology = Topology.build(doc.switches, doc.links, hosts, partial=doc.discovered)
    return replace(doc, hosts=topology.hosts, pipeline=doc.pipeline.extended(topology))


class _Taken:
    """What the declared hosts of a network have."""

    def __init__(self, doc: NetworkDoc) -> None:
        self._ids = {host.id: host for host in doc.hosts}
        self._macs = {host.mac.lower(): host for host in doc.hosts if host.mac}
        self._addresses = {_address(host): host for host in doc.hosts if host.ipv6}

    def why(self, host: Host) -> str | None:
        """Why a host cannot join, because of what another one has; None if it can."""
        if other := self._macs.get((host.mac or "").lower()):
            return f"it has the MAC of {_place(other)}; if it has moved, declare where it is now"
        if other := self._ids.get(host.id):
            return f"it has the id of {_place(other)}; choose another id"
        if host.ipv6 and (other := self._addresses.get(_address(host))):
            return f"it announces the address of {_place(other)}"
        return None


def _place(host: Host) -> str:
    return f"host {host.id}, which is declared at {host.switch}:{host.port}"


def _order(one: SeenHost) -> tuple[float, str, int]:
    return one.since, one.host.switch, one.host.port


def _address(host: Host) -> str:
    return IPv6Address(host.ipv6).compressed if host.ipv6 else ""


def _fit(pipeline: Pipeline, switch: Switch, hosts: Collection[Host]) -> bool:
    """Whether a switch has tables and groups for these hosts; without any, for one more."""
    try:
        pipeline.extended(Topology.build([switch], [], hosts or [_another(switch)], partial=True))
    except (OutOfTables, OutOfGroups):
        return False
    return True


def _another(switch: Switch) -> Host:
    return Host("-" * 64, switch.id, 1)  # an id that no host has or had
