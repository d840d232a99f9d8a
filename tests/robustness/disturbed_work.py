"""Moves of partitions and changes of maps, for faults that strike in one of their phases."""

from collections.abc import Callable
from random import Random
from urllib.parse import quote

from configurators.state.wanted import leaving, read_count
from configurators.store.documents import decode_move, decode_plan, decode_space
from configurators.store.etcd.client import Etcd
from configurators.store.keys import MOVES, OWNERS, SPACES, move_key, plan_key, wanted_key
from configurators.store.model import MovePhase, PlanPhase
from tests.partition_maps import draw_map, plan_body
from tests.robustness.phase_faults import Attempt, Choose, Processes

BITS = range(12)  # that drawn maps test


def move_in_phase(phase: MovePhase) -> Choose:
    """Chooses any partition that can move, to be disturbed when the move is in this phase."""

    def reached(document: bytes) -> bool | None:
        found = decode_move(document).phase
        return None if found == "failed" else found == phase

    async def choose(etcd: Etcd, processes: Processes, role: str, random: Random) -> Attempt | None:
        page = await etcd.range(OWNERS)
        owners = {item.key.removeprefix(OWNERS): item.value.decode() for item in page.items}
        moving = {item.key.removeprefix(MOVES) for item in (await etcd.range(MOVES)).items}
        alive = processes.configurators
        free = [name for name in sorted(owners) if owners[name] in alive and name not in moving]
        if not free or len(alive) < 2:
            return None
        partition = random.choice(free)
        source = owners[partition]
        target = random.choice([name for name in sorted(alive) if name != source])
        of = {
            "source": alive[source],
            "target": alive[target],
            "leader": processes.leader,
            "etcd": processes.etcd,
        }
        return Attempt(
            f"/partitions/{quote(partition, safe='')}/migrate",
            {"to": target, "wait": False},
            move_key(partition),
            page.revision,
            reached,
            _describe_move(partition),
            processes.leader,
            of[role],
        )

    return choose


def plan_in_phase(phase: PlanPhase) -> Choose:
    """Chooses another map for a space, to be disturbed when its plan is in this phase."""

    def reached(document: bytes) -> bool | None:
        found = decode_plan(document)
        return found.phase == phase if found.running else None

    async def choose(etcd: Etcd, processes: Processes, role: str, random: Random) -> Attempt | None:
        page = await etcd.range(SPACES)
        if not (page.items and processes.configurators and processes.southbound):
            return None
        doc = decode_space(random.choice(page.items).value)
        made = doc.versions[doc.current]
        wanted = draw_map(random, made.map.plan, BITS)
        configurators = sorted(processes.configurators)
        assignment: dict[str, str] = {}
        if (await etcd.range(OWNERS)).items:  # mode `sna`
            count = await etcd.get(wanted_key("configurators"))
            leave = leaving(configurators, read_count(count.value if count else None))
            staying = [name for name in configurators if name not in leave]
            assignment = {leaf: random.choice(staying) for leaf in wanted.leaves() if staying}
        of = {
            "configurator": processes.configurators[random.choice(configurators)],
            "southbound": processes.southbound[random.choice(sorted(processes.southbound))],
            "leader": processes.leader,
            "etcd": processes.etcd,
        }
        present = {"space": doc.name, "version": doc.current, "number": made.map_number}
        return Attempt(
            "/partitions/plan",
            plan_body(present, wanted, assignment),
            plan_key(doc.number),
            page.revision,
            reached,
            _describe_plan,
            processes.leader,
            of[role],
        )

    return choose


def _describe_move(partition: str) -> Callable[[bytes], str]:
    def describe(document: bytes) -> str:
        move = decode_move(document)
        return f"{partition} from {move.source} to {move.target}"

    return describe


def _describe_plan(document: bytes) -> str:
    plan = decode_plan(document)
    return f"{plan.space} to {', '.join(plan.map.leaves())}"
