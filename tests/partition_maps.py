"""Partition maps that tests go over to, drawn at random, and the plans that lead there."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from msgspec import to_builtins

from configurators.engine.partition_map import Node, PartitionMap
from sdn.tables.pipeline import PlanName

_DEPTH = 2  # tests on the way to a partition


def draw_map(random: Random, plan: PlanName, bits: Sequence[int]) -> PartitionMap:
    """A map that is at most two tests deep; under `legs` it tests some of these bits."""
    return PartitionMap(plan, _draw_node(random, plan == "lpm", bits, ()))


def plan_body(
    present: Mapping[str, Any], wanted: PartitionMap, assignment: Mapping[str, str]
) -> dict[str, Any]:
    """The body of a call that goes from the present map, as `GET /partitions` shows it, there."""
    return {**present, "map": to_builtins(wanted), "assignment": dict(assignment)}


def _draw_node(
    random: Random, in_dz_order: bool, bits: Sequence[int], tested: tuple[int, ...]
) -> Node | None:
    if len(tested) == _DEPTH or random.random() < 0.3:
        return None
    left = [bit for bit in bits if bit not in tested]
    bit = len(tested) if in_dz_order else random.choice(left)
    below = random, in_dz_order, bits, (*tested, bit)
    zero, one = _draw_node(*below), _draw_node(*below)
    return Node(bit, zero, one, None if in_dz_order else _draw_node(*below))
