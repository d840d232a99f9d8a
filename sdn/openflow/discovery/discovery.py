"""Finds links between switches and hosts at their edge; without clock and I/O.

Discovery probes every port that may lead to a switch with LLDP frames. A probe names its port and a
nonce, under a keyed tag. A probe is accepted only if it is the last one of its port and arrives for
the first time, at another switch. A link is up only when probes have arrived both ways. So a host
that forges, replays or reflects probes achieves nothing, and neither does a host that carries
probes of its own port elsewhere. A port with a host, seen or declared, is no link. A port in a link
gets no second peer: the older link stays until its probes no longer arrive.

Several processes with one key find the links between their switches, too. A probe also repeats the
nonce of the last probe that has arrived at its port from another process. So a process whose own
nonce comes back in an authentic probe knows that both directions work, now, and between which
ports. Each of the two processes finds the link by itself.

Two attacks remain possible. Two hosts that have never sent anything, at undeclared ports of
different switches, can relay each other's probes both ways in real time: they look like a cable,
and discovery trusts their ports. And a host that uses the MAC of another looks like that host after
a move. An operator prevents the first by declaring the hosts or, with `closed`, the links, and the
second by declaring the hosts with their MACs.

Hosts may be asked to announce themselves. An answer counts only at the port that was asked, because
switches may forward it. Before a switch is connected, it may forward a question, or its machine may
answer it. So a port where hosts have only answered can still become a link. That adds nothing to
the first attack: those hosts could as well have said nothing.

Where switches forward other traffic, what a host says comes out at all switches until the links are
found. So a host that is heard at several ports marks none of them, until it has been at one port
only for a while. Hosts that use each other's MACs for this have, again, only said nothing. A switch
that is connected for the first time may have forwarded before what was heard at others only. So
what was heard until then marks no port either; a host marks its port when it speaks again.

A switch may speak, too: Linux announces an address of its own on each port, and on the bridge. The
MACs of a connected switch are no hosts. A probe has the MAC of its port as its source, under the
tag. What was heard from this MAC at the port where the probe arrives was that switch, and no host,
also if another process has the switch. A host that takes such a MAC has only said nothing, too.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import count

from dzflow.errors import BadInput
from sdn.network.events import HostSeen, LinkChanged, NetworkEvent
from sdn.network.findings import SeenHost
from sdn.network.topology import MAX_PORT, Host, Link, Topology
from sdn.openflow.discovery import frames
from sdn.openflow.discovery.hosts import End, HostTable
from sdn.openflow.discovery.limits import Budget, DiscoveryCounters, DiscoveryLimits
from sdn.openflow.discovery.ports import PortTable
from sdn.openflow.discovery.probed_ports import LinkState
from sdn.openflow.discovery.prober import Prober

SHORTEST_KEY, LONGEST_KEY = 16, 64


class BadKey(BadInput):
    """A key that is too short to protect probes, or too long for the hash."""


class Discovery:
    """Learns links and hosts from reports of switches, and says which probes to send.

    Processes that share switches have the same key. Each counts its nonces from another random
    number on, so that probes of an earlier process are not accepted. Times are seconds of one clock
    that does not go back. With `ask_hosts`, hosts that are silent are asked to announce themselves.
    """

    def __init__(
        self,
        key: bytes,
        limits: DiscoveryLimits | None = None,
        first_nonce: int = 1,
        *,
        ask_hosts: bool = False,
    ) -> None:
        if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
            raise BadKey(
                f"a key of {len(key)} bytes; take {SHORTEST_KEY} to {LONGEST_KEY} random ones"
            )
        self.counters = DiscoveryCounters()
        self.limits = limits or DiscoveryLimits()
        self._hosts = HostTable(self.limits, self.counters)
        self._ports = PortTable(self.limits, self._hosts)
        nonces = count(first_nonce)
        self._prober = Prober(
            key, self.limits, self._ports, self._hosts, self.counters, nonces, ask_hosts
        )
        self._total_budget = Budget(self.limits.total_rate, self.limits.total_burst)

    # Results

    def links(self) -> tuple[Link, ...]:
        """The links that are up; those of switches that are away are as they were."""
        return tuple(known.link for known in self._ports.links() if known.state is LinkState.UP)

    def confirmed_links(self) -> tuple[Link, ...]:
        """Those of them that have carried probes since both switches are there."""
        up = (known for known in self._ports.links() if known.state is LinkState.UP)
        return tuple(known.link for known in up if known.confirmed)

    def hosts(self) -> tuple[Host, ...]:
        """The hosts that were learned."""
        return self._hosts.hosts()

    def seen_hosts(self) -> tuple[SeenHost, ...]:
        """The same with times, and declared hosts that were heard at a port that is not theirs."""
        return self._hosts.seen()

    def crossed(self, now: float) -> dict[End, End]:
        """The ports at which probes arrive of a port that should lead elsewhere."""
        return self._ports.crossed(now)

    def validate(self) -> None:
        """Assert the invariants of discovery; for tests."""
        ends: set[End] = set()
        for link in self.links():
            for end in link.ends:
                assert end not in ends, f"{end} is in two links"
                ends.add(end)
                assert not self._hosts.is_host_port(end), f"{end} has a host"
        for host in self.hosts():
            assert (host.switch, host.port) not in ends
        self._ports.validate()
        self._hosts.validate()

    # Declarations of the operator

    def declare(self, topology: Topology, *, closed: bool = False) -> list[NetworkEvent]:
        """The operator declares hosts and links; replaces all earlier declarations.

        Ports of declared hosts are never probed and never lead to a switch; those of a declared
        link lead to its other end or nowhere. With `closed` there are no other links.
        """
        return self.declare_parts(topology.hosts, topology.links, closed=closed)

    def declare_parts(
        self,
        hosts: Iterable[Host],
        links: Iterable[Link] = (),
        *,
        closed: bool = False,
        expected: Iterable[Link] = (),
        unprobed: Collection[Link] = frozenset(),
    ) -> list[NetworkEvent]:
        """The same for hosts and links that need not be a whole topology.

        Links that are only `expected` are reported to be down if they carry no probes; after that,
        their ports may lead elsewhere. Links of the declared ones that are `unprobed` are never
        reported to be down: no probes have to pass them.
        """
        self._hosts.declare(hosts)
        self._prober.closed = closed
        wanted = dict.fromkeys(links)
        reserved = {end: link for link in wanted for end in link.ends}
        events: list[NetworkEvent] = []
        for known in self._ports.links():
            was_up, known.declared = known.state is LinkState.UP, known.link in wanted
            known.unprobed = known.unprobed and known.declared and known.link in unprobed
            taken = any(end in reserved or self._hosts.is_declared(end) for end in known.link.ends)
            if known.declared or (was_up and not taken and not closed):
                continue
            self._ports.take_down(known)
            if was_up:
                events.append(LinkChanged(known.link, up=False))
        for link in wanted:
            events += self._ports.reserve(link, link in unprobed)
        for link in expected:
            self._ports.expect(link)
        return events

    # Reports of switches

    def switch_up(
        self, switch: str, ports: Iterable[int], macs: Mapping[int, bytes] | None = None
    ) -> list[NetworkEvent]:
        """A switch is connected and sends us LLDP; these of its ports are up, and no others.

        `macs`: the MACs of its ports, as far as they are known, also of those that lead nowhere.
        """
        return self._ports.switch_up(switch, ports, macs or {})

    def switch_down(self, switch: str) -> None:
        """The connection to a switch is lost; it may go on forwarding, so its links stay."""
        self._ports.switch_down(switch)

    def switch_removed(self, switch: str) -> list[NetworkEvent]:
        """A switch is no longer part of the network: everything about it is forgotten."""
        return self._ports.switch_removed(switch)

    def port_changed(
        self, switch: str, port: int, up: bool, now: float, mac: bytes | None = None
    ) -> list[NetworkEvent]:
        """A port of a connected switch went up or down."""
        if switch not in self._ports.connected or not 1 <= port <= MAX_PORT:
            return []
        if not up:
            return self._ports.port_down((switch, port))
        self._ports.port_up((switch, port), now, mac)
        return []

    def packet_in(self, switch: str, port: int, data: bytes, now: float) -> list[NetworkEvent]:
        """A packet that came in by a port; unwanted ones are dropped by port and type."""
        counters, end = self.counters, (switch, port)
        counters.packet_ins += 1
        at = self._ports.get(end)
        if at is None or not at.up or switch not in self._ports.connected:
            counters.unknown_port += 1
            return []
        kind = data[12:14]
        if kind == frames.IPV6_TYPE and at.link is not None:
            # Without using up the budget: hosts behind other switches must not starve probes.
            counters.neighbour_at_link += 1
        elif not at.budget.take(now):
            counters.over_port_rate += 1
        elif at.link is None and not self._total_budget.take(now):
            counters.over_total_rate += 1
        elif kind == frames.LLDP_TYPE:
            return self._prober.arrived(end, at, data, now)
        elif kind == frames.IPV6_TYPE:
            return self._host_spoke(end, data, now)
        else:
            counters.other_packets += 1
        return []

    # Probes and time-outs

    def probes(
        self, now: float, busy: Collection[str] = frozenset()
    ) -> list[tuple[str, int, bytes]]:
        """The probes that are due, as switch, port and frame.

        Switches that are busy would send them late: they get none, and their links do not time out.
        """
        return self._prober.due(now, busy)

    def tick(self, now: float) -> list[NetworkEvent]:
        """Take links down whose probes have not arrived for too long."""
        return self._ports.take_down_overdue(now)

    def wake_at(self, now: float) -> float | None:
        """When `probes` and `tick` next have something to do; None if nothing is known."""
        times = (self._ports.next_deadline(), self._prober.next_due(now))
        return min((at for at in times if at is not None), default=None)

    # Hosts

    def _host_spoke(self, end: End, data: bytes, now: float) -> list[NetworkEvent]:
        said = frames.read_announcement(data)
        if self._hosts.is_declared(end):
            self.counters.neighbour_declared += 1
            if said is not None:
                self._hosts.heard_at_declared(end, said.mac, now)
            return []
        if said is None:
            self.counters.neighbour_malformed += 1
            return []
        answers = frames.is_asker(said.wanted)
        if answers and said.wanted != frames.asker_at(*end):
            # Switches have forwarded it from the port that was asked.
            self.counters.neighbour_elsewhere += 1
            return []
        if self._ports.is_switch(said.mac):
            self.counters.neighbour_switch += 1
            return []
        host = self._hosts.learn(end, said, now, answers=answers)
        return [HostSeen(host)] if host else []
