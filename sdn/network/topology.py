"""The network as the control plane sees it: switches, the links between them, hosts at the edge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from dzflow.errors import BadInput
from sdn.network.switch_limits import AS_ALL, SwitchLimits

# OpenFlow 1.0 keeps 0xff00 and above for itself; staying below is right for every version.
MAX_PORT = 0xFEFF
MAX_DPID = 2**64 - 1

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_DIGITS = re.compile(r"([0-9]+)")

T = TypeVar("T")


class Switch(Struct, frozen=True, omit_defaults=True):
    """An OpenFlow switch: our name for it, the datapath id it reports itself, what it can take.

    `label` is what people call it; unlike the id, it can change at any time.
    """

    id: str
    dpid: int
    limits: SwitchLimits = AS_ALL
    label: str = ""


class Link(Struct, frozen=True):
    """A cable between two switches; its ends are swapped if need be, so that each has one form."""

    a: str
    a_port: int
    b: str
    b_port: int

    def __post_init__(self) -> None:
        if (self.b, self.b_port) < (self.a, self.a_port):
            a, a_port, b, b_port = self.a, self.a_port, self.b, self.b_port
            for name, value in (("a", b), ("a_port", b_port), ("b", a), ("b_port", a_port)):
                force_setattr(self, name, value)

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Both ends as (switch, port)."""
        return (self.a, self.a_port), (self.b, self.b_port)

    def __str__(self) -> str:
        return f"{self.a}:{self.a_port} - {self.b}:{self.b_port}"


class Host(Struct, frozen=True):
    """A host and the switch port it hangs on."""

    id: str
    switch: str
    port: int
    mac: str | None = None
    ipv6: str | None = None


class ToSwitch(Struct, frozen=True, tag="switch"):
    """The leg through a port that leads to a neighbour switch."""

    port: int


class ToHost(Struct, frozen=True, tag="host"):
    """The leg to a host of this switch, whatever port it is on."""

    host: str


Leg = ToSwitch | ToHost
"""One way out of a switch: a port to a neighbour switch, or a host."""


class Neighbour(NamedTuple):
    """The port of another switch that a port leads to."""

    port: int
    switch: str
    peer_port: int


class TopologyError(BadInput):
    """A topology, or a question to one, that makes no sense; `element` is the part at fault."""

    def __init__(self, message: str, element: Switch | Link | Host | None = None) -> None:
        super().__init__(message)
        self.element = element


class UnknownSwitch(TopologyError):
    """A switch is named that the topology does not have."""


class UnknownHost(TopologyError):
    """A host is named that the topology does not have."""


class UnknownLink(TopologyError):
    """A link is named that the topology does not have."""


class DuplicateSwitch(TopologyError):
    """Two switches have the same id."""


class DuplicateDpid(TopologyError):
    """Two switches have the same datapath id."""


class DuplicateHost(TopologyError):
    """Two hosts have the same id."""


class PortTaken(TopologyError):
    """A port of a switch is used twice."""


class SelfLink(TopologyError):
    """A link leads from a switch to itself."""


class BadId(TopologyError):
    """An id is empty, too long or holds other than letters, digits, `_`, `.` and `-`."""


class BadPort(TopologyError):
    """A port number is outside 1..65279."""


class BadDpid(TopologyError):
    """A datapath id is outside 1..2^64-1."""


class BadMac(TopologyError):
    """A MAC address is malformed or not that of a single host."""


class BadIpv6(TopologyError):
    """An IPv6 address is malformed or not that of a single host."""


class NoSwitches(TopologyError):
    """A topology without any switch."""


class NotConnected(TopologyError):
    """The switches fall into `parts` without a link between them."""

    parts: tuple[tuple[str, ...], ...] = ()


def natural_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """A sort key that puts s2 before s10."""
    # Text and digits alternate, beginning with text, so that like is always compared with like.
    pieces = _DIGITS.split(name)
    return tuple(int(p) if i % 2 else p for i, p in enumerate(pieces)), name


@dataclass(frozen=True, slots=True)
class _Wiring:
    """The part of a topology that depends on switches and links only."""

    switches: Mapping[str, Switch]
    links: Mapping[tuple[str, int], Link]
    neighbours: Mapping[str, tuple[Neighbour, ...]]
    switch_ports: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Edge:
    """Where the hosts are."""

    hosts: Mapping[str, Host]
    ports: Mapping[tuple[str, int], Host]
    at: Mapping[str, tuple[Host, ...]]


@dataclass(frozen=True, slots=True)
class Topology:
    """Switches, links and hosts that fit together; never changed, made by `Topology.build`.

    Each of the three is in natural order (s2 before s10), so that equal networks are equal objects.
    Nothing that discovery sends passes the links that are `unprobed`.
    """

    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    hosts: tuple[Host, ...]
    unprobed: frozenset[Link]
    _wiring: _Wiring = field(compare=False, repr=False)
    _edge: _Edge = field(compare=False, repr=False)

    @classmethod
    def build(
        cls,
        switches: Iterable[Switch],
        links: Iterable[Link],
        hosts: Iterable[Host],
        *,
        partial: bool = False,
        unprobed: Iterable[Link] = (),
    ) -> Topology:
        """The topology of these parts; raises a `TopologyError` that says what is wrong.

        A `partial` one is still being discovered: it may have no switch, or lack links. Links that
        are `unprobed`, and not among the others, do not count.
        """
        wiring = _wire(switches, links, partial)
        edge = _attach(wiring, hosts)
        in_order = tuple(sorted(set(wiring.links.values()), key=_link_key))
        known = tuple(wiring.switches.values())
        hidden = frozenset(unprobed).intersection(in_order)
        return cls(known, in_order, tuple(edge.hosts.values()), hidden, wiring, edge)

    def switch(self, switch: str) -> Switch:
        """The switch of this id."""
        return _of(self._wiring.switches, switch)

    def host(self, host: str) -> Host:
        """The host of this id."""
        try:
            return self._edge.hosts[host]
        except KeyError:
            raise UnknownHost(
                f"there is no host {host[:64]!r}; `dzflow topology` lists those that are known"
            ) from None

    def neighbours(self, switch: str) -> tuple[Neighbour, ...]:
        """The neighbours of a switch, by port."""
        return _of(self._wiring.neighbours, switch)

    def switch_ports(self, switch: str) -> tuple[int, ...]:
        """The ports of a switch that lead to other switches, ascending."""
        return _of(self._wiring.switch_ports, switch)

    def hosts_at(self, switch: str) -> tuple[Host, ...]:
        """The hosts of a switch."""
        return _of(self._edge.at, switch)

    def at(self, switch: str, port: int) -> Link | Host | None:
        """What is plugged into a port."""
        self.switch(switch)
        end = (switch, port)
        return self._wiring.links.get(end) or self._edge.ports.get(end)

    def with_host(self, host: Host) -> Topology:
        """This topology with the host added, or moved if its id is known."""
        return self._with_hosts([*(h for h in self.hosts if h.id != host.id), host])

    def without_host(self, host: str) -> Topology:
        """This topology without the host."""
        gone = self.host(host)
        return self._with_hosts(h for h in self.hosts if h is not gone)

    def _with_hosts(self, hosts: Iterable[Host]) -> Topology:
        edge = _attach(self._wiring, hosts)
        return replace(self, hosts=tuple(edge.hosts.values()), _edge=edge)


def _wire(switches: Iterable[Switch], links: Iterable[Link], partial: bool) -> _Wiring:
    known: dict[str, Switch] = {}
    dpids: dict[int, str] = {}
    for switch in switches:
        what = f"switch {switch.id}"
        _check_id(what, switch)
        if not 1 <= switch.dpid <= MAX_DPID:
            raise BadDpid(f"{what}: dpid {switch.dpid} is outside 1..2^64-1", switch)
        if switch.id in known:
            raise DuplicateSwitch(f"{what} is there twice; rename one", switch)
        if switch.dpid in dpids:
            other = dpids[switch.dpid]
            raise DuplicateDpid(f"{what}: {other} has dpid {switch.dpid} too", switch)
        known[switch.id] = switch
        dpids[switch.dpid] = switch.id
    if not known and not partial:
        raise NoSwitches("there is no switch; a topology needs at least one")
    known = _in_order(known)

    ends: dict[tuple[str, int], Link] = {}
    leads: dict[str, list[Neighbour]] = {switch: [] for switch in known}
    for link in links:
        if link.a == link.b:
            raise SelfLink(f"link {link} leads from {link.a} to itself; remove it", link)
        for (name, port), (peer, peer_port) in (link.ends, link.ends[::-1]):
            _check_end(f"link {link}", name, port, link, known, ends)
            ends[name, port] = link
            leads[name].append(Neighbour(port, peer, peer_port))
    neighbours = {name: tuple(sorted(found)) for name, found in leads.items()}
    if not partial:
        _check_connected(neighbours)
    ports = {name: tuple(n.port for n in found) for name, found in neighbours.items()}
    return _Wiring(known, ends, neighbours, ports)


def _attach(wiring: _Wiring, hosts: Iterable[Host]) -> _Edge:
    known: dict[str, Host] = {}
    ports: dict[tuple[str, int], Host] = {}
    for host in hosts:
        what = f"host {host.id}"
        _check_id(what, host)
        if host.id in known:
            raise DuplicateHost(f"{what} is there twice; rename one", host)
        _check_end(what, host.switch, host.port, host, wiring.switches, wiring.links, ports)
        if host.mac is not None and not _is_unicast_mac(host.mac):
            raise BadMac(f"{what}: {host.mac!r} is no MAC of a host like 02:00:00:00:00:01", host)
        if host.ipv6 is not None and not _is_unicast_ipv6(host.ipv6):
            raise BadIpv6(f"{what}: {host.ipv6!r} is no IPv6 address of a host like fd00::1", host)
        known[host.id] = host
        ports[host.switch, host.port] = host
    known = _in_order(known)
    at: dict[str, list[Host]] = {switch: [] for switch in wiring.switches}
    for host in known.values():
        at[host.switch].append(host)
    return _Edge(known, ports, {switch: tuple(found) for switch, found in at.items()})


def _check_id(what: str, element: Switch | Host) -> None:
    if not _ID.fullmatch(element.id):
        raise BadId(
            f"{what[:72]!r}: an id is 1 to 64 letters, digits, '_', '.' and '-', nothing else",
            element,
        )


def _check_end(
    what: str,
    switch: str,
    port: int,
    element: Link | Host,
    switches: Mapping[str, Switch],
    *taken: Mapping[tuple[str, int], Link | Host],
) -> None:
    if switch not in switches:
        raise UnknownSwitch(f"{what}: there is no switch {switch[:64]!r}", element)
    if not 1 <= port <= MAX_PORT:
        raise BadPort(f"{what}: port {port} is outside 1..{MAX_PORT}", element)
    for ends in taken:
        if other := ends.get((switch, port)):
            name = f"host {other.id}" if isinstance(other, Host) else f"link {other}"
            raise PortTaken(
                f"{what}: port {port} of {switch} is taken by {name}; use another", element
            )


def _check_connected(neighbours: Mapping[str, tuple[Neighbour, ...]]) -> None:
    parts: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for start in neighbours:
        if start in seen:
            continue
        part = [start]
        seen.add(start)
        for switch in part:
            new = {n.switch for n in neighbours[switch]} - seen
            seen |= new
            part.extend(new)
        parts.append(tuple(sorted(part, key=natural_key)))
    if len(parts) > 1:
        shown = [f"({', '.join(part[:8])}{', …' * (len(part) > 8)})" for part in parts[:8]]
        error = NotConnected(
            f"the switches are in {len(parts)} parts without a link between them: "
            f"{', '.join(shown)}{', …' * (len(parts) > 8)}; links must join them"
        )
        error.parts = tuple(parts)
        raise error


def _is_unicast_mac(text: str) -> bool:
    # The lowest bit of the first byte marks a group address.
    return bool(_MAC.fullmatch(text)) and not int(text[:2], 16) & 1 and text.strip("0:") != ""


def _is_unicast_ipv6(text: str) -> bool:
    try:
        address = IPv6Address(text)
    except ValueError:
        return False
    return not (address.is_multicast or address.is_unspecified or address.scope_id)


def _of(table: Mapping[str, T], switch: str) -> T:
    try:
        return table[switch]
    except KeyError:
        raise UnknownSwitch(
            f"there is no switch {switch[:64]!r}; `dzflow topology` lists those that are known"
        ) from None


def _in_order(table: dict[str, T]) -> dict[str, T]:
    return {name: table[name] for name in sorted(table, key=natural_key)}


def _link_key(link: Link) -> tuple[object, ...]:
    return natural_key(link.a), link.a_port, natural_key(link.b), link.b_port
