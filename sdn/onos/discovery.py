"""The network as ONOS sees it."""

from collections.abc import Iterable
from ipaddress import IPv6Address

from sdn.network.topology import Host, Link, Switch, Topology, natural_key
from sdn.onos.wire import (
    Device,
    Devices,
    DirectedLink,
    FoundHost,
    Hosts,
    Links,
    dpid_of,
    port_number,
)


def build(devices: Devices, links: Links, hosts: Hosts, known: Topology | None = None) -> Topology:
    """The topology of connected OpenFlow switches, links in use and hosts at free ports.

    Switches and hosts that `known` has keep their names (hosts by MAC, then by port); others are
    called by datapath id and MAC. Of several hosts at one port only one is taken: they are one leg.
    """
    named = {switch.dpid: switch.id for switch in known.switches} if known else {}
    switches = _switches(devices.devices, named)
    cables = set(_links(links.links, switches))
    taken = {end for cable in cables for end in cable.ends}
    return Topology.build(switches.values(), cables, _hosts(hosts.hosts, switches, taken, known))


def connected(devices: Devices) -> set[str]:
    """The ids of the devices that are connected to ONOS."""
    return {device.id for device in devices.devices if device.available}


def _switches(devices: Iterable[Device], named: dict[int, str]) -> dict[str, Switch]:
    found = {}
    for device in devices:
        dpid = dpid_of(device.id)
        if device.available and device.type == "SWITCH" and dpid:
            found[device.id] = Switch(named.get(dpid, f"s{dpid}"), dpid)
    return found


def _links(links: Iterable[DirectedLink], switches: dict[str, Switch]) -> Iterable[Link]:
    for link in links:
        a, b = switches.get(link.src.device), switches.get(link.dst.device)
        a_port, b_port = port_number(link.src.port), port_number(link.dst.port)
        if a and b and a_port and b_port and (link.type, link.state) == ("DIRECT", "ACTIVE"):
            yield Link(a.id, a_port, b.id, b_port)


def _hosts(
    hosts: Iterable[FoundHost],
    switches: dict[str, Switch],
    taken: set[tuple[str, int]],
    known: Topology | None,
) -> list[Host]:
    by_mac = {h.mac.lower(): h.id for h in known.hosts if h.mac} if known else {}
    by_port = {(h.switch, h.port): h.id for h in known.hosts if not h.mac} if known else {}
    names: set[str] = set()
    found = []
    for host in sorted(hosts, key=lambda host: natural_key(host.mac)):
        places = host.locations or ((host.location,) if host.location else ())
        for place in places:
            switch, port = switches.get(place.element_id), port_number(place.port)
            if switch is None or port is None or (switch.id, port) in taken:
                continue
            mac = host.mac.lower()
            name = by_mac.get(mac) or by_port.get((switch.id, port))
            if name is None or name in names:
                name = f"h-{mac.replace(':', '')}"
            names.add(name)
            taken.add((switch.id, port))
            found.append(Host(name, switch.id, port, mac, _address(host.ip_addresses)))
            break
    return found


def _address(addresses: Iterable[str]) -> str | None:
    """The IPv6 address that a host is best known by: one of its own network if it has any."""
    own = [a for text in addresses if (a := _unicast(text)) is not None]
    best = min(own, key=lambda address: (address.is_link_local, address), default=None)
    return str(best) if best else None


def _unicast(text: str) -> IPv6Address | None:
    try:
        address = IPv6Address(text)
    except ValueError:
        return None  # IPv4
    return None if address.is_multicast or address.is_unspecified or address.scope_id else address
