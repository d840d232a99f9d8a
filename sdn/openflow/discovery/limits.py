"""The limits of discovery, and its counters."""

from msgspec import Struct
from msgspec.structs import asdict

from dzflow.errors import BadInput


class BadLimits(BadInput):
    """Limits with which discovery could do nothing."""


class DiscoveryLimits(Struct, frozen=True):
    """How often ports are probed, and how much is accepted from switches and hosts.

    Rates are per second; a burst is the number that may come at once after a pause.
    """

    interval: float = 3.0  # seconds between two probes of a port
    missed: int = 3  # probes in a row that do not arrive, and the link is gone
    probe_rate: float = 2_000
    probe_burst: int = 500
    port_rate: float = 20  # packet-ins of one port
    port_burst: int = 40
    total_rate: float = 2_000  # packet-ins of all ports that belong to no link
    total_burst: int = 2_000
    hosts_per_port: int = 8
    hosts: int = 10_000
    move_every: float = 1.0  # seconds in which a host moves once at most
    settle_after: float = 30.0  # seconds at one port only, after a host was heard at several

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise BadLimits(f"discovery: {name} is {value}; it must be greater than 0")


class DiscoveryCounters(Struct):
    """Counters; all after the first three lines count what was refused."""

    probes_sent: int = 0
    probes_accepted: int = 0
    host_moves: int = 0

    packet_ins: int = 0  # all of them
    unknown_port: int = 0  # from a port that is not there, or down
    over_port_rate: int = 0
    over_total_rate: int = 0
    other_packets: int = 0  # neither LLDP nor IPv6

    lldp_foreign: int = 0  # not in our form
    lldp_forged: int = 0  # in our form with a wrong tag
    lldp_replayed: int = 0  # not the last probe of its port, or accepted already
    lldp_reflected: int = 0  # back at the port that it left
    lldp_own_switch: int = 0  # at another port of the switch that it left
    lldp_at_host: int = 0  # from or to a port where a host is
    lldp_conflict: int = 0  # a second peer, or one that was not declared

    neighbour_malformed: int = 0
    neighbour_at_link: int = 0  # on a port that leads to a switch
    neighbour_switch: int = 0  # a switch itself has said it
    neighbour_elsewhere: int = 0  # an answer to a question that was asked at another port
    neighbour_declared: int = 0  # on the port or with the MAC of a declared host
    hosts_refused: int = 0  # there were as many as allowed
    host_moves_held: int = 0  # sooner after the last move than allowed


_ONE = 1 - 1e-3  # less than one, so that rounding does not lead to a wait for a time that is over


class Budget:
    """A token bucket: so much per second, and a burst after a pause."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = float("-inf")

    def take(self, now: float) -> bool:
        """Whether one more is allowed now; if so, it is counted."""
        if now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
            self._at = now
        if self._left < _ONE:
            return False
        self._left -= 1
        return True

    def wait(self, now: float) -> float:
        """Seconds until one more is allowed."""
        refilled = max(0.0, now - self._at) * self._rate
        return max(0.0, 1 - self._left - refilled) / self._rate
