"""Rendezvous hashing: shares switches (or partitions) among processes. Pure."""

from collections.abc import Collection, Iterable
from hashlib import blake2b


def spread(switches: Iterable[str], processes: Collection[str]) -> dict[str, str]:
    """The process of each switch.

    Uses rendezvous hashing with bounded load: everybody computes the same from the same switches
    and processes, no process gets more than one switch more than another, and when a process comes
    or goes, few switches of the others move.
    """
    names = sorted(switches)
    if not processes:
        return {}
    most = -(-len(names) // len(processes))
    room = dict.fromkeys(processes, most)
    found = {}
    for switch in names:
        chosen = found[switch] = heaviest(room, switch)
        room[chosen] -= 1
        if not room[chosen]:
            del room[chosen]
    return found


def share(switches: Iterable[str], processes: Collection[str], me: str) -> frozenset[str]:
    """The switches that one of the processes gets by `spread`."""
    found = spread(switches, processes)
    return frozenset(switch for switch, process in found.items() if process == me)


def heaviest(processes: Iterable[str], switch: str) -> str:
    """The one of some processes that has the highest weight for a switch."""
    return max(processes, key=lambda process: _weight(process, switch))


def _weight(process: str, switch: str) -> tuple[bytes, str]:
    return blake2b(f"{process}\0{switch}".encode(), digest_size=8).digest(), process
