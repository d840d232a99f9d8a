"""What a lab is made of: names, addresses, and the commands that build it. Nothing runs here."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from dzflow.address import PREFIX
from sdn.lab.errors import BadController
from sdn.network.topology import Host, Link, Topology

HOST_INTERFACE = "eth0"
"""The name of a host's interface, seen from the host."""

PROTOCOLS = ("OpenFlow13", "OpenFlow14")

# Four letters, not digits: the datapath reads port numbers out of names that hold some. With the
# number of a host or a switch behind it, a name stays within the kernel's 15 characters.
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TAG_LETTERS = 4
_TAG = "dzl"
TAGS = len(_LETTERS) ** _TAG_LETTERS

# Interface groups of our own, one per lab: a group is removed with one command, at once.
_FIRST_GROUP = 0x52000000

# Open vSwitch has one userspace datapath of type netdev per network namespace, for it makes a tap
# device of a fixed name. The same datapath under the type dummy makes none: several labs can run
# beside each other, and nothing outlives a killed process.
_DATAPATH = "dummy"

_MAC_BASE = 0x02D2 << 32
_NETWORK = int(IPv6Address("fd00:d2::"))
# More than any lab has hosts: where to go on looking when the topology gives an address of ours.
_BEYOND = 1 << 16

Command = list[str]
_End = tuple[str, int]


def tag_of(number: int) -> str:
    """The name of a lab, by a number below `TAGS`."""
    letters = []
    for _ in range(_TAG_LETTERS):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return _TAG + "".join(reversed(letters))


def group_of(tag: str) -> int:
    """The interface group of a lab."""
    number = 0
    for letter in tag.removeprefix(_TAG):
        number = number * len(_LETTERS) + _LETTERS.index(letter)
    return _FIRST_GROUP + number


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files for TLS of switches: their key, their certificate, and the trusted authority."""

    key: Path
    certificate: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class HostSite:
    """A host of a lab: its namespace, the switch's end of its cable, and its addresses."""

    host: Host
    namespace: str
    port_name: str
    mac: str
    ipv6: str


@dataclass(frozen=True, slots=True)
class LabPlan:
    """A topology with a name for everything that a lab makes; made by `LabPlan.of`."""

    tag: str
    topology: Topology
    sites: Mapping[str, HostSite]
    _bridges: Mapping[str, str]

    @classmethod
    def of(cls, tag: str, topology: Topology) -> LabPlan:
        """The plan of a topology; names hold positions, because ids may be longer than names."""
        macs = {_number(host.mac) for host in topology.hosts if host.mac}
        addresses = {int(IPv6Address(host.ipv6)) for host in topology.hosts if host.ipv6}
        sites = {
            host.id: HostSite(
                host,
                namespace=f"{tag}-{host.id}",
                port_name=f"{tag}-h{position}",
                mac=host.mac or _mac(_free(_MAC_BASE + position, macs)),
                ipv6=host.ipv6 or str(IPv6Address(_free(_NETWORK + position, addresses))),
            )
            for position, host in enumerate(topology.hosts, 1)
        }
        bridges = {s.id: f"{tag}-s{position}" for position, s in enumerate(topology.switches, 1)}
        return cls(tag, topology, sites, bridges)

    def bridge(self, switch: str) -> str:
        """The name of a switch's bridge."""
        return self._bridges[self.topology.switch(switch).id]

    def namespaces(self) -> list[str]:
        """The lines for `ip -batch` that make all namespaces and cables."""
        lines = []
        for site in self.sites.values():
            ours = f"{site.port_name} group {group_of(self.tag)}"
            theirs = f"{HOST_INTERFACE} address {site.mac} netns {site.namespace}"
            lines += [
                f"netns add {site.namespace}",
                f"link add {ours} type veth peer name {theirs}",
                # Without an address of its own, the outside takes no part in the host's traffic.
                f"link set {site.port_name} addrgenmode none up",
            ]
        return lines

    def inside(self, host: str) -> list[str]:
        """The lines for `ip -batch` inside a host's namespace."""
        site, dev = self.sites[host], f"dev {HOST_INTERFACE}"
        return [
            "link set lo up",
            f"link set {HOST_INTERFACE} addrgenmode none",
            f"link set {HOST_INTERFACE} up",
            # No other has these addresses; looking for one that does would take a second.
            f"addr add {site.ipv6}/64 {dev} nodad",
            f"addr add {_link_local(site.mac)}/64 {dev} nodad",
            f"route add ::/0 {dev}",
            # In the table that is asked first, so that no other interface gets our events.
            f"route add multicast {PREFIX:x}::/16 {dev} table local",
        ]

    def network(
        self, controllers: Sequence[str], protocols: Sequence[str], tls: Certificates | None
    ) -> list[Command]:
        """The commands for `ovs-vsctl` that make all switches and links."""
        commands: list[Command] = []
        if tls:
            files = (tls.key, tls.certificate, tls.authority)
            commands.append(["set-ssl", *(str(file.absolute()) for file in files)])
        for switch in self.topology.switches:
            commands += self.switch(switch.id, controllers, protocols)
        return commands

    def switch(
        self, switch: str, controllers: Sequence[str], protocols: Sequence[str]
    ) -> list[Command]:
        """The commands for `ovs-vsctl` that make one switch with all its ports."""
        bridge = self.bridge(switch)
        dpid = self.topology.switch(switch).dpid
        commands = [
            ["add-br", bridge],
            [
                *("set", "bridge", bridge, f"datapath_type={_DATAPATH}", "fail_mode=secure"),
                f"protocols={','.join(protocols)}",
                f"other-config:datapath-id={dpid:016x}",
                f"other-config:dp-desc={switch}",
            ],
        ]
        for n in self.topology.neighbours(switch):
            commands += self._plug((switch, n.port), (n.switch, n.peer_port))
        for host in self.topology.hosts_at(switch):
            commands += _add_port(bridge, self.sites[host.id].port_name, host.port)
        return commands + self.connect(switch, controllers)

    def connect(self, switch: str, controllers: Sequence[str]) -> list[Command]:
        """The commands for `ovs-vsctl` that tell a switch its controllers."""
        bridge = self.bridge(switch)
        names = [f"@{bridge}-{number}" for number in range(len(controllers))]
        commands = [
            [
                *(f"--id={name}", "create", "controller", f'target="{target}"'),
                # In band, hidden flows of the switch's own would be before ours.
                *("connection_mode=out-of-band", "max_backoff=1000"),
            ]
            for name, target in zip(names, controllers, strict=True)
        ]
        if names:
            commands.append(["set", "bridge", bridge, f"controller={','.join(names)}"])
        return commands

    def plug(self, link: Link) -> list[Command]:
        """The commands for `ovs-vsctl` that plug a link in."""
        a, b = link.ends
        return self._plug(a, b) + self._plug(b, a)

    def unplug(self, link: Link) -> list[Command]:
        """The commands for `ovs-vsctl` that unplug a link."""
        return [["--if-exists", "del-port", self.bridge(e[0]), self._patch(e)] for e in link.ends]

    def _plug(self, end: _End, peer: _End) -> list[Command]:
        options = ["type=patch", f"options:peer={self._patch(peer)}"]
        return _add_port(self.bridge(end[0]), self._patch(end), end[1], options)

    def _patch(self, end: _End) -> str:
        # Without the tag, for no one but the lab's own Open vSwitch sees these names.
        return f"{self.bridge(end[0]).removeprefix(self.tag + '-')}p{end[1]}"


def check_controllers(controllers: Iterable[str], tls: Certificates | None) -> tuple[str, ...]:
    """The controllers, if a switch can be told each of them."""
    checked = tuple(controllers)
    for target in checked:
        if not _is_target(target):
            raise BadController(
                f"controller {target[:80]!r} is not like tcp:127.0.0.1:6653 or ssl:[::1]:6653"
            )
        if target.startswith("ssl:") and not tls:
            raise BadController(f"controller {target} needs certificates; pass them as tls=")
    return checked


def _is_target(text: str) -> bool:
    match = re.fullmatch(r"(?:tcp|ssl):(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\]):([0-9]{1,5})", text)
    if not match or not 0 < int(match[3]) < 1 << 16:
        return False
    try:
        return ip_address(match[1] or match[2]).version == (4 if match[1] else 6)
    except ValueError:
        return False


def _add_port(bridge: str, name: str, number: int, options: Sequence[str] = ()) -> list[Command]:
    return [
        ["--may-exist", "add-port", bridge, name],
        ["set", "interface", name, f"ofport_request={number}", *options],
    ]


def _free(number: int, taken: Container[int]) -> int:
    while number in taken:
        number += _BEYOND
    return number


def _number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def _mac(number: int) -> str:
    return number.to_bytes(6, "big").hex(":")


def _link_local(mac: str) -> IPv6Address:
    octets = _number(mac).to_bytes(6, "big")
    interface = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return IPv6Address(b"\xfe\x80" + bytes(6) + interface)
