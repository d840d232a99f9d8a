"""The kinds of faults, and which of them a round gets. Pure."""

from collections.abc import Sequence
from random import Random

from msgspec import Struct

from configurators.store.model import MovePhase, PlanPhase

SWITCHES = ("s1", "s2", "s3", "s4")
MOVE_PHASES: tuple[MovePhase, ...] = ("asked", "copying", "handing over", "moved")
PLAN_PHASES: tuple[PlanPhase, ...] = ("cutting", "settling", "moving")
_LEASE = 10.0  # seconds after which a process that does not renew its lease counts as dead


class Kind(Struct, frozen=True):
    """A kind of fault: its targets, how long it lasts, and whether it cuts the paths of events."""

    name: str
    targets: tuple[str, ...]
    shortest: float = 0.0
    longest: float = 0.0
    cuts: bool = False  # at the target switch, or everywhere if it is the network process
    strands: bool = False  # the switch may count as lost, which cuts off its own hosts only
    weight: int = 2  # how often it is drawn, relative to others


class PlannedFault(Struct, frozen=True):
    """A fault of a round, `at` so many seconds after the round begins."""

    kind: Kind
    target: str
    at: float
    lasts: float
    index: int  # which of several processes: modulo their number


_PROCESSES = ("api", "configurator", "southbound", "etcd")
_STREAMS = ("configurator", "southbound")

WHOLE = (
    Kind("kill", _PROCESSES, weight=8),
    Kind("kill", ("raylet", "gcs", "workers")),
    Kind("stop", (*_PROCESSES, "workers"), _LEASE + 1, _LEASE + 4, weight=4),
    Kind("stop briefly", (*_PROCESSES, "raylet", "gcs"), 0.5, 4.0, weight=4),
    # Rare, because they excuse missed events.
    Kind("kill", ("network",), cuts=True, weight=1),
    Kind("stop briefly", ("network",), 0.5, 3.0, cuts=True, weight=1),
    Kind("cut streams", _STREAMS, 0.0, 3.0),
)
_LINES = (
    Kind("kill", _PROCESSES, weight=6),
    Kind("stop", _PROCESSES, _LEASE + 1, _LEASE + 4),
    Kind("stop briefly", _PROCESSES, 0.5, 4.0),
    Kind("cut", ("etcd", "openflow"), 0.0, 6.0),
    Kind("hang", ("etcd", "openflow"), 1.0, _LEASE + 4),
    Kind("delay", ("etcd", "openflow"), 2.0, 8.0),
    Kind("cut streams", _STREAMS, 0.0, 3.0),
)
WIRED = (
    *_LINES,
    Kind("switch drops", SWITCHES, 0.0, 6.0, strands=True),
    Kind("switch restarts", SWITCHES, 0.0, 4.0, cuts=True),
    Kind("switch ignores barriers", SWITCHES, 2.0, 8.0, strands=True),
    Kind("switch answers early", SWITCHES, 1.0, 5.0, cuts=True),
    Kind("switch loses flow-mods", SWITCHES, 1.0, 5.0, cuts=True),
    Kind("switch refuses", SWITCHES, 1.0, 5.0),
)
LAB = (
    *_LINES,
    Kind("Open vSwitch: bridge restarts", SWITCHES, 0.0, 4.0),
    Kind("Open vSwitch: bridge disconnects", SWITCHES, 0.0, 6.0),
    Kind("Open vSwitch: daemon killed", ("all",), 0.0, 4.0),
)
MOVES = tuple(
    Kind(f"kill, move {phase}", ("source", "target", "leader", "etcd"), weight=4)
    for phase in MOVE_PHASES
)
"""Kills while a partition is moving and its move is in this phase (mode `sna`)."""
PLANS = tuple(
    Kind(f"kill, plan {phase}", ("configurator", "southbound", "leader", "etcd"), weight=4)
    for phase in PLAN_PHASES
)
"""Kills while the partition map is changed and its plan is in this phase."""


def plan_round(random: Random, kinds: Sequence[Kind], most: int = 4) -> list[PlannedFault]:
    """The faults of a round: some, at times that may overlap."""
    found = []
    for _ in range(random.randint(1, most)):
        (kind,) = random.choices(kinds, [kind.weight for kind in kinds])
        found.append(
            PlannedFault(
                kind,
                random.choice(kind.targets),
                round(random.uniform(0.5, 5.0), 2),
                round(random.uniform(kind.shortest, kind.longest), 2),
                random.randrange(1000),
            )
        )
    return sorted(found, key=lambda planned: planned.at)
