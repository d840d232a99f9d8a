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
only for a while. Hosts that use each other's MACs for this have, again, only said nothing.

A switch may speak, too: Linux announces an address of its own on each port. A probe has the MAC of
its port as its source, under the tag. What was heard from this MAC at the port where the probe
arrives was that switch, and no host. A host that takes this MAC has only said nothing, too.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import count

from dzflow.errors import BadInput
from sdn.network.events import HostSeen, LinkChanged, NetworkEvent
from sdn.network.findings import SeenHost
from sdn.network.topology import MAX_PORT, Host, Link, Topology
from sdn.openflow.discovery import frames
from sdn.openflow.discovery.hosts import End, HostTable
from sdn.openflow.discovery.limits import Budget, DiscoveryCounters, Settings
from sdn.openflow.discovery.ports import PortTable
from sdn.openflow.discovery.probed_ports import KnownLink, LinkState, ProbedPort

log = logging.getLogger(__name__)

SHORTEST_KEY, LONGEST_KEY = 16, 64
PROBES_AT_HOSTS = 10  # where a host has spoken, in a row: it may be a switch
SELDOM = 10  # the rounds between later probes there
MAX_WARNINGS = 4  # for each port until it goes down, so that an attacker cannot fill the log


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
        settings: Settings | None = None,
        first_nonce: int = 1,
        *,
        ask_hosts: bool = False,
    ) -> None:
        if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
            raise BadKey(
                f"a key of {len(key)} bytes; take {SHORTEST_KEY} to {LONGEST_KEY} random ones"
            )
        self.counters = DiscoveryCounters()
        self.settings = settings or Settings()
        self._key = key
        self._hosts = HostTable(self.settings, self.counters)
        self._ports = PortTable(self.settings, self._hosts)
        self._closed = False
        self._busy: frozenset[str] = frozenset()
        self._probe_budget = Budget(self.settings.probe_rate, self.settings.probe_burst)
        self._total_budget = Budget(self.settings.total_rate, self.settings.total_burst)
        self._nonces = count(first_nonce)
        self._ask_hosts = ask_hosts

    # Results

    def links(self) -> tuple[Link, ...]:
        """The links that are up."""
        return tuple(one.link for one in self._ports.links() if one.state is LinkState.UP)

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
        self._closed = closed
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

        `macs`: the MACs of its ports, as far as they are known.
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
            return self._probe_arrived(end, at, data, now)
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
        self._busy = frozenset(busy)
        if self._busy:
            self._ports.suspend(self._busy)
        found: list[tuple[str, int, bytes]] = []
        while (first := self._ports.schedule.first()) and first[0] <= now:
            _, end, port = first
            wanted = self._is_to_be_probed(end, port, now)
            if wanted and not self._probe_budget.take(now):
                break
            self._ports.schedule.put_off(end, port, now)
            if wanted:
                found.append((*end, self._probe(end, port, now)))
                if self._is_to_be_asked(end, port) and self._probe_budget.take(now):
                    found.append((*end, frames.build_question(frames.asker_at(*end))))
        return found

    def tick(self, now: float) -> list[NetworkEvent]:
        """Take links down whose probes have not arrived for too long."""
        return self._ports.take_down_overdue(now)

    def wake_at(self, now: float) -> float | None:
        """When `probes` and `tick` next have something to do; None if nothing is known."""
        times = [] if (deadline := self._ports.next_deadline()) is None else [deadline]
        if first := self._ports.schedule.first():
            times.append(max(first[0], now + self._probe_budget.wait(now)))
        return min(times, default=None)

    # Probes

    def _is_to_be_probed(self, end: End, port: ProbedPort, now: float) -> bool:
        if not port.up or not self._is_watched(end[0]) or self._hosts.is_declared(end):
            return False
        if self._hosts.is_host_port(end) and port.unanswered >= PROBES_AT_HOSTS:
            return now - port.sent > (SELDOM - 0.5) * self.settings.interval
        if port.link is None:
            return not self._closed
        peer = port.link.peer(end)[0]
        # A switch that is not connected here may be another process's.
        return self._is_watched(peer) or peer not in self._ports.connected

    def _is_to_be_asked(self, end: End, port: ProbedPort) -> bool:
        """Whether hosts at a port are asked now: not before a link would have been found."""
        missed = port.unanswered
        due = 2 <= missed <= 4 or missed % 10 == 0
        return due and self._ask_hosts and port.link is None and not self._hosts.is_host_port(end)

    def _is_watched(self, switch: str) -> bool:
        return switch in self._ports.connected and switch not in self._busy

    def _probe(self, end: End, port: ProbedPort, now: float) -> bytes:
        if port.nonce is not None:
            port.reach = None  # the last one did not arrive
        port.nonce = next(self._nonces)
        port.recent = (*port.recent[-1:], port.nonce)
        port.sent = now
        port.unanswered += 1
        self.counters.probes_sent += 1
        lost = port.unanswered >= self.settings.missed
        if lost and port.link is not None and self._must_answer(end, port.link):
            self._ports.await_probe(end, now + self.settings.interval)
        heard = port.heard[1] if port.heard else 0
        return frames.build_probe(self._key, *end, port.nonce, heard, port.mac)

    def _must_answer(self, end: End, link: KnownLink) -> bool:
        """Whether a link is down if its probes are missing."""
        watched = link.shared or self._is_watched(link.peer(end)[0])
        return watched and not link.unprobed and link.state is not LinkState.DOWN

    def _probe_arrived(
        self, end: End, at: ProbedPort, data: bytes, now: float
    ) -> list[NetworkEvent]:
        counters = self.counters
        probe = frames.read_probe(data)
        if probe is None:
            counters.lldp_foreign += 1
            return []
        if not probe.authentic(self._key):
            counters.lldp_forged += 1
            return []
        origin = (probe.switch, probe.port)
        sender = self._ports.get(origin)
        if origin[0] not in self._ports.connected:
            return self._heard_another(end, at, origin, probe, now)
        if origin == end:
            counters.lldp_reflected += 1
        elif sender is None or sender.nonce != probe.nonce:
            counters.lldp_replayed += 1
        elif origin[0] == end[0]:
            counters.lldp_own_switch += 1
        elif self._hosts.forget_switch(end, probe.mac):
            self._ports.schedule.hasten(end, at, now)  # so that the other port learns the same
        elif not self._is_refused(end, at, origin, sender, now):
            return self._accept(end, at, origin, sender, now)
        return []

    def _heard_another(
        self, end: End, at: ProbedPort, origin: End, probe: frames.Probe, now: float
    ) -> list[NetworkEvent]:
        """A probe of a switch that is not connected here: another process's, or an old one."""
        counters, far = self.counters, self._ports.get(origin)
        if not 1 <= origin[1] <= MAX_PORT:
            counters.lldp_foreign += 1
        elif self._hosts.forget_switch(end, probe.mac):
            self._ports.schedule.hasten(end, at, now)
        elif not self._is_refused(end, at, origin, far, now):
            return self._share(end, at, origin, probe, now)
        return []

    def _is_refused(
        self, end: End, at: ProbedPort, origin: End, far: ProbedPort | None, now: float
    ) -> bool:
        """Whether two ports can be no link; that is counted and noted. `far` is at `origin`."""
        if self._hosts.is_host_port(end) or self._hosts.is_host_port(origin):
            self.counters.lldp_at_host += 1
            self._refuse(end, at, origin, now, "a host was seen or declared at one of them")
            return True
        far_link = far.link if far else None
        if at.link is not far_link:
            self.counters.lldp_conflict += 1
            older = at.link or far_link
            assert older
            self._refuse(end, at, origin, now, f"{older.link} is a link already, which stays")
            return True
        if at.link is None and self._closed:
            self.counters.lldp_conflict += 1
            self._refuse(end, at, origin, now, "only declared links are allowed")
            return True
        return False

    def _share(
        self, end: End, at: ProbedPort, origin: End, probe: frames.Probe, now: float
    ) -> list[NetworkEvent]:
        if at.heard is None or at.heard[0] != origin:
            self._ports.schedule.hasten(
                end, at, now
            )  # our answer, without waiting for the next round
        at.heard = origin, probe.nonce
        # The one before the last, too: the two processes may always send at the same moment.
        if probe.heard not in at.recent:
            return []
        self.counters.probes_accepted += 1
        self._ports.uncross(end)
        at.unanswered = 0
        self._ports.stop_awaiting(end)
        link = at.link
        if link is None:
            link = self._ports.new_link(Link(*end, *origin))
        link.shared = True
        was, link.state = link.state, LinkState.UP
        return [] if was is LinkState.UP else [LinkChanged(link.link, up=True)]

    def _accept(
        self, end: End, at: ProbedPort, origin: End, sender: ProbedPort, now: float
    ) -> list[NetworkEvent]:
        self.counters.probes_accepted += 1
        self._ports.uncross(end)
        sender.nonce = None
        sender.unanswered = 0
        sender.reach = (end, at.life)
        self._ports.stop_awaiting(origin)
        link = at.link
        if link is not None:
            link.shared = False
        if link is not None and link.state is LinkState.UP:
            return []
        if at.reach != (origin, sender.life):
            self._ports.schedule.hasten(
                end, at, now
            )  # our answer, without waiting for the next round
            return []
        if link is None:
            link = self._ports.new_link(Link(*end, *origin))
        link.state = LinkState.UP
        return [LinkChanged(link.link, up=True)]

    def _refuse(self, end: End, at: ProbedPort, origin: End, now: float, why: str) -> None:
        """Note that two ports seem to be connected that are no link; log once for each pair why."""
        self._ports.cross(end, origin, now)
        if origin not in at.warned and len(at.warned) < MAX_WARNINGS:
            at.warned.add(origin)
            log.warning(
                "port %d of %s receives probes of port %d of %s, but %s; check the cables, and"
                " whether a host relays probes",
                *end[::-1],
                *origin[::-1],
                why,
            )

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
        host = self._hosts.learn(end, said, now, answers=answers)
        return [HostSeen(host)] if host else []
