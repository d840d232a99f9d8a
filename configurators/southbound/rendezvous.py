"""Rendezvous hashing: shares switches (or partitions) among processes. Pure."""

from collections.abc import Collection, Iterable
from hashlib import blake2b


def share(switches: Iterable[str], processes: Collection[str], me: str) -> frozenset[str]:
    """The switches that one of the processes is responsible for.

    Uses rendezvous hashing with bounded load: every process computes the same shares from the same
    switches and processes, no share is larger than the others by more than one, and when a process
    comes or goes, few switches of the others move.
    """
    names = sorted(switches)
    most = -(-len(names) // len(processes))
    room = dict.fromkeys(processes, most)
    mine = []
    for switch in names:
        chosen = max(room, key=lambda process: _weight(process, switch))
        room[chosen] -= 1
        if not room[chosen]:
            del room[chosen]
        if chosen == me:
            mine.append(switch)
    return frozenset(mine)


def _weight(process: str, switch: str) -> tuple[bytes, str]:
    return blake2b(f"{process}\0{switch}".encode(), digest_size=8).digest(), process
