"""Assigns partitions to configurators, equal or not, and moves few of them. Pure."""

from collections.abc import Mapping

from msgspec import Struct

_SLACKS = (float("inf"), 0.2, 0.1, 0.05, 0.0, None)
"""How much more than its share an owner may have before partitions leave; None: none stays."""

MOVE_PRICE = 0.1
"""Moving all work is worth it if it takes a tenth of the mean load off the busiest configurator."""


class Fleet(Struct, frozen=True):
    """The configurators: their speeds, the work they have from elsewhere, and who owns what."""

    speeds: Mapping[str, float]
    others: Mapping[str, float] = {}  # work of other spaces
    owners: Mapping[str, str] = {}  # by leaf; those of leaves that are not known are missing
    shared: bool = False  # mode sea: every configurator works on every partition


class Assignment(Struct, frozen=True):
    """An owner for each leaf, and what that makes of the load."""

    owners: Mapping[str, str]
    loads: Mapping[str, float]  # by configurator, of all spaces
    imbalance: float
    moved: float  # work in leaves that are new, or change their owner


def assign(work: Mapping[str, float], fleet: Fleet) -> Assignment:
    """The owners that balance best, where each move has its price.

    A leaf stays with its owner if that has not too much work then; how much is too much is tried
    out. The others are placed by falling work where they would be done first (longest processing
    time first).
    """
    tried = [_assign(work, fleet, slack) for slack in _SLACKS]
    total = sum(work.values()) or 1.0
    return min(tried, key=lambda found: found.imbalance + MOVE_PRICE * found.moved / total)


def keep(work: Mapping[str, float], fleet: Fleet) -> Assignment:
    """The owners as they are; leaves whose owner is not known go where they would be done first."""
    return _assign(work, fleet, float("inf"))


def busiest(assignment: Assignment, fleet: Fleet) -> float:
    """How long the busiest configurator works."""
    return max(load / fleet.speeds[name] for name, load in assignment.loads.items())


def imbalance_of(loads: Mapping[str, float], speeds: Mapping[str, float]) -> float:
    """How much longer the busiest configurator works than all would if work were spread evenly."""
    even = sum(loads.values()) / sum(speeds.values())
    return max(load / speeds[name] for name, load in loads.items()) / even if even else 1.0


def _assign(work: Mapping[str, float], fleet: Fleet, slack: float | None) -> Assignment:
    speeds = fleet.speeds
    present = {} if fleet.shared else fleet.owners
    loads = {name: fleet.others.get(name, 0.0) for name in sorted(speeds)}
    counts = dict.fromkeys(loads, 0)
    even = (sum(loads.values()) + sum(work.values())) / sum(speeds.values())
    falling = sorted(work, key=lambda leaf: (-work[leaf], leaf))
    owners: dict[str, str] = {}

    def give(leaf: str, owner: str) -> None:
        owners[leaf] = owner
        loads[owner] += work[leaf]
        counts[owner] += 1

    for leaf in falling:
        owner = present.get(leaf, "")
        if owner not in speeds:
            continue
        then = (loads[owner] + work[leaf]) / speeds[owner]
        # The heaviest one of an owner may be more than its share wherever it is.
        fits = slack is not None and (then <= even * (1 + slack) or not counts[owner])
        if fits or not work[leaf]:
            give(leaf, owner)
    for leaf in falling:
        if leaf not in owners:
            more = work[leaf]
            rank = {
                name: ((loads[name] + more) / speeds[name], present.get(leaf) != name, counts[name])
                for name in loads
            }
            give(leaf, min(rank, key=lambda name: (rank[name], name)))
    moved = sum(work[leaf] for leaf, owner in owners.items() if present.get(leaf) != owner)
    # In mode sea no partition belongs to a configurator, so none moves.
    gone = 0.0 if fleet.shared else moved
    return Assignment(owners, loads, imbalance_of(loads, speeds), gone)
