"""What users see of moves, partition maps, and plans for them."""

from typing import Literal

from msgspec import Struct

from configurators.engine.partition_map import PartitionMap
from configurators.state.spaces import Spaces
from configurators.store.model import MapPlan, Move, MoveCause, MovePhase, PlanPhase
from monitor.plans.steps import steps_left


class MoveView(Struct, frozen=True):
    """The move of a partition to another configurator."""

    partition: str
    source: str
    target: str
    phase: MovePhase
    reason: str
    began: float  # seconds since 1970
    cause: MoveCause = "operator"


class MapView(Struct, frozen=True):
    """The partition map of a version of a space; plans are made for a number of it."""

    space: str
    version: int
    number: int
    map: PartitionMap


class PlanStepView(Struct, frozen=True):
    """One change of a partition map: leaves that go, and the leaves that have their part then."""

    state: Literal["open", "settling", "done"]
    removed: tuple[str, ...]
    added: tuple[str, ...]


class PlanView(Struct, frozen=True):
    """The last plan for the partition map of a space, running or ended.

    `number` is that of the map that it was made for. `text` says why it was aborted, or what it has
    left undone; `waiting` what the step that is settling waits for.
    """

    id: str
    space: str
    version: int
    number: int
    phase: PlanPhase
    running: bool
    aborting: bool
    steps: list[PlanStepView]
    map: PartitionMap
    assignment: dict[str, str]
    reasons: tuple[str, ...]
    began: float  # seconds since 1970
    text: str
    waiting: str


def show_plan(plan: MapPlan, current: PartitionMap | None, waiting: str = "") -> PlanView:
    """A plan as users see it; `current` is the map that the space has now, if it is known."""
    left = len(plan.steps) if current is None else steps_left(current, plan.map)
    done = max(0, len(plan.steps) - left)
    steps = []
    for place, step in enumerate(plan.steps, 1):
        settling = plan.phase == "settling" and plan.before is not None and place == done
        state: Literal["open", "settling", "done"] = "done" if place <= done else "open"
        steps.append(PlanStepView("settling" if settling else state, step.removed, step.added))
    return PlanView(
        plan.id,
        plan.space,
        plan.version,
        plan.made_for,
        plan.phase,
        plan.running,
        plan.aborting,
        steps,
        plan.map,
        plan.assignment,
        plan.reasons,
        plan.began,
        plan.text,
        waiting if plan.running else "",
    )


def show_move(partition: str, move: Move) -> MoveView:
    """A move as users see it."""
    return MoveView(
        partition, move.source, move.target, move.phase, move.text, move.began, move.cause
    )


def show_maps(spaces: Spaces) -> list[MapView]:
    """The partition maps of all spaces."""
    return [
        MapView(space.name, version, view.map_number, view.map)
        for space in sorted(spaces, key=lambda space: space.name)
        for version, view in sorted(space.versions.items())
    ]
