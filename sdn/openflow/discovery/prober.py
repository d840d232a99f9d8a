"""Sends probes by every port that may lead to a switch, and judges those that arrive.

`sdn/openflow/discovery/discovery.py` says what a probe proves, and which attacks remain.
"""

import logging
from collections.abc import Collection, Iterator

from sdn.network.events import NetworkEvent
from sdn.network.topology import MAX_PORT, Link
from sdn.openflow.discovery import frames
from sdn.openflow.discovery.hosts import End, HostTable
from sdn.openflow.discovery.limits import Budget, DiscoveryCounters, DiscoveryLimits
from sdn.openflow.discovery.ports import PortTable
from sdn.openflow.discovery.probed_ports import KnownLink, LinkState, ProbedPort

log = logging.getLogger(__name__)

PROBES_AT_HOSTS = 10  # where a host has spoken, in a row: it may be a switch
SELDOM = 10  # the rounds between later probes there
MAX_WARNINGS = 4  # for each port until it goes down, so that an attacker cannot fill the log


class Prober:
    """Finds links by probes; with `closed`, only declared ones. `nonces` tell probes apart."""

    def __init__(
        self,
        key: bytes,
        limits: DiscoveryLimits,
        ports: PortTable,
        hosts: HostTable,
        counters: DiscoveryCounters,
        nonces: Iterator[int],
        ask_hosts: bool,
    ) -> None:
        self.closed = False
        self._key = key
        self._limits = limits
        self._ports = ports
        self._hosts = hosts
        self._counters = counters
        self._nonces = nonces
        self._ask_hosts = ask_hosts
        self._busy: frozenset[str] = frozenset()
        self._budget = Budget(limits.probe_rate, limits.probe_burst)

    # Probes that are sent

    def due(self, now: float, busy: Collection[str]) -> list[tuple[str, int, bytes]]:
        """The probes that are due, as switch, port and frame; none of switches that are busy."""
        self._busy = frozenset(busy)
        if self._busy:
            self._ports.suspend(self._busy)
        found: list[tuple[str, int, bytes]] = []
        while (first := self._ports.schedule.first()) and first[0] <= now:
            _, end, port = first
            wanted = self._is_to_be_probed(end, port, now)
            if wanted and not self._budget.take(now):
                break
            self._ports.schedule.put_off(end, port, now)
            if wanted:
                found.append((*end, self._probe(end, port, now)))
                if self._is_to_be_asked(end, port) and self._budget.take(now):
                    found.append((*end, frames.build_question(frames.asker_at(*end))))
        return found

    def next_due(self, now: float) -> float | None:
        """When `due` next has something to do, if that is known."""
        first = self._ports.schedule.first()
        return max(first[0], now + self._budget.wait(now)) if first else None

    def _is_to_be_probed(self, end: End, port: ProbedPort, now: float) -> bool:
        if not port.up or not self._is_watched(end[0]) or self._hosts.is_declared(end):
            return False
        if self._hosts.is_host_port(end) and port.unanswered >= PROBES_AT_HOSTS:
            return now - port.sent > (SELDOM - 0.5) * self._limits.interval
        if port.link is None:
            return not self.closed
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
        self._counters.probes_sent += 1
        lost = port.unanswered >= self._limits.missed
        if lost and port.link is not None and self._must_answer(end, port.link):
            self._ports.await_probe(end, now + self._limits.interval)
        heard = port.heard[1] if port.heard else 0
        return frames.build_probe(self._key, *end, port.nonce, heard, port.mac)

    def _must_answer(self, end: End, link: KnownLink) -> bool:
        """Whether a link is down if its probes are missing."""
        watched = link.shared or self._is_watched(link.peer(end)[0])
        return watched and not link.unprobed and link.state is not LinkState.DOWN

    # Probes that arrive

    def arrived(self, end: End, at: ProbedPort, data: bytes, now: float) -> list[NetworkEvent]:
        """A probe, or another frame of LLDP, has arrived at a port."""
        counters = self._counters
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
        counters, far = self._counters, self._ports.get(origin)
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
            self._counters.lldp_at_host += 1
            self._refuse(end, at, origin, now, "a host was seen or declared at one of them")
            return True
        far_link = far.link if far else None
        if at.link is not far_link:
            self._counters.lldp_conflict += 1
            older = at.link or far_link
            assert older
            self._refuse(end, at, origin, now, f"{older.link} is a link already, which stays")
            return True
        if at.link is None and self.closed:
            self._counters.lldp_conflict += 1
            self._refuse(end, at, origin, now, "only declared links are allowed")
            return True
        return False

    def _share(
        self, end: End, at: ProbedPort, origin: End, probe: frames.Probe, now: float
    ) -> list[NetworkEvent]:
        if at.heard is None or at.heard[0] != origin:
            # Our answer, without waiting for the next round.
            self._ports.schedule.hasten(end, at, now)
        at.heard = origin, probe.nonce
        # The one before the last, too: the two processes may always send at the same moment.
        if probe.heard not in at.recent:
            return []
        self._counters.probes_accepted += 1
        self._ports.uncross(end)
        at.unanswered = 0
        self._ports.stop_awaiting(end)
        link = at.link
        if link is None:
            link = self._ports.new_link(Link(*end, *origin))
        link.shared = True
        return self._ports.carries_probes(link)

    def _accept(
        self, end: End, at: ProbedPort, origin: End, sender: ProbedPort, now: float
    ) -> list[NetworkEvent]:
        self._counters.probes_accepted += 1
        self._ports.uncross(end)
        sender.nonce = None
        sender.unanswered = 0
        sender.reach = (end, at.life)
        self._ports.stop_awaiting(origin)
        link = at.link
        if link is not None:
            link.shared = False
        if link is not None and link.state is LinkState.UP:
            return self._ports.carries_probes(link)
        if at.reach != (origin, sender.life):
            # Our answer, without waiting for the next round.
            self._ports.schedule.hasten(end, at, now)
            return []
        if link is None:
            link = self._ports.new_link(Link(*end, *origin))
        return self._ports.carries_probes(link)

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
