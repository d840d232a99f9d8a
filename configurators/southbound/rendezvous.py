"""Which of several southbound processes is responsible for which switch. Pure."""

from collections.abc import Collection, Iterable
from hashlib import blake2b


def share(switches: Iterable[str], processes: Collection[str], me: str) -> frozenset[str]:
    """The switches that one of the processes is responsible for.

    By rendezvous hashing with bounded load: all who know the same switches and processes agree,
    none has more than its part, and when one goes or comes, few of the others' switches change
    hands.
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
