"""Which southbound process is responsible for each switch. Pure.

Every process computes the same from the same documents in etcd. Which connections count is decided
by the process that has them (`stable_connections.py`), so nothing here depends on time.
"""

from collections.abc import Collection, Iterable, Mapping

from configurators.southbound.rendezvous import heaviest, spread
from configurators.state.wanted import staying
from configurators.store.model import Connections

_NOTHING = Connections()


def assign(
    switches: Iterable[str],
    alive: Collection[str],
    connections: Mapping[str, Connections],
    wanted: int | None = None,
) -> dict[str, str]:
    """The process of each switch: one that the switch is connected to, if there is one.

    A process that is to leave (by the `wanted` count, or because it is about to end) keeps a switch
    only while the switch is connected to it, and to no process that stays. A switch that is away
    stays with the process that it was connected to, where it is likely to come back. A switch that
    was connected to none yet, as after a start, belongs to one by an even share.
    """
    names = list(switches)
    stay = remaining(alive, connections, wanted)
    preferred = spread(names, stay)
    having = _by_switch(names, {p: connections.get(p, _NOTHING).connected for p in alive})
    expecting = _by_switch(names, {p: connections.get(p, _NOTHING).away for p in stay})
    found = {}
    for switch, first in preferred.items():
        # A share must not depend on where other switches are connected: one that comes and goes
        # would move others. So the even shares are those of all switches and processes.
        candidates = having[switch] & stay or having[switch] or expecting[switch] or {first}
        found[switch] = first if first in candidates else heaviest(candidates, switch)
    return found


def remaining(
    alive: Collection[str], connections: Mapping[str, Connections], wanted: int | None = None
) -> frozenset[str]:
    """The processes that stay: neither too many, nor about to end; all if there is none such."""
    stay = staying(alive, wanted)
    return frozenset(p for p in stay if not connections.get(p, _NOTHING).leaving) or stay


def _by_switch(names: Iterable[str], lists: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The processes that name each switch."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for process, switches in lists.items():
        for switch in switches:
            if switch in found:  # and not one that is no longer part of the network
                found[switch].add(process)
    return found
