"""From one partition map to another: one differing part of the tree at a time. Pure."""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from configurators.engine.partition_map import Node, PartitionMap
from configurators.store.model import PlanStep

_Child = Literal["zero", "one", "open"]
_CHILDREN: tuple[_Child, ...] = ("zero", "one", "open")


def next_map(current: PartitionMap, target: PartitionMap) -> PartitionMap | None:
    """The map after the next step towards another one; None if it is reached.

    A step replaces one part of the tree in which the two maps test different bits. All other leaves
    keep their names, their owners and their entries.
    """
    path = next(_differences(current.root, target.root), None)
    if path is None:
        return None
    return PartitionMap(current.plan, _replaced(current.root, target.root, path))


def all_steps(current: PartitionMap, target: PartitionMap) -> Iterator[PlanStep]:
    """The steps that lead from one map to another, in order."""
    while (following := next_map(current, target)) is not None:
        before, after = current.leaves(), following.leaves()
        kept = {*before} & {*after}
        yield PlanStep(
            tuple(leaf for leaf in before if leaf not in kept),
            tuple(leaf for leaf in after if leaf not in kept),
        )
        current = following


def steps_left(current: PartitionMap, target: PartitionMap) -> int:
    """How many steps lead from one map to another."""
    return sum(1 for _ in _differences(current.root, target.root))


def _differences(
    current: Node | None, target: Node | None, path: tuple[_Child, ...] = ()
) -> Iterator[tuple[_Child, ...]]:
    """The paths to the smallest parts that contain all differences."""
    if current == target:
        return
    if current is None or target is None or current.bit != target.bit:
        yield path
        return
    for child in _CHILDREN:
        yield from _differences(getattr(current, child), getattr(target, child), (*path, child))


def _replaced(current: Node | None, target: Node | None, path: tuple[_Child, ...]) -> Node | None:
    """A tree with the part at a path replaced by that of another tree."""
    if not path:
        return target
    assert current
    assert target
    child, *rest = path
    part = _replaced(getattr(current, child), getattr(target, child), tuple(rest))
    return replace(current, **{child: part})
