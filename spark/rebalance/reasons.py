"""Says why a plan is proposed, in words with ranges of attributes. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from configurators.engine.map_draft import Weighted
from configurators.engine.partition_map import Node, PartitionMap
from dzflow.filters import conjunction_text
from dzflow.index import Index
from dzflow.region import EVERYTHING, WIDTH, Region
from spark.rebalance.planner import Proposal

MOST_REASONS = 20
_MOST_NAMES = 6  # of partitions in one reason
_MOST_TEXT = 1_000  # characters of a reason
_HOT = 0.5  # the share of the work that the hot part of a space has at least


class HotCell(Struct, frozen=True):
    """A part of a space in words, and the share of the work that lies there."""

    text: str
    share: float


def find_reasons(proposal: Proposal, index: Index, is_shared: bool) -> tuple[str, ...]:
    """Why a plan is proposed: where the work is, and what each change is for."""
    present, best = proposal.present, proposal.best
    before, after = present.load.work, best.load.work
    total = sum(before.values()) or 1.0
    found = []
    items = [item for part in present.placement.parts.values() for item in part]
    if cell := hot_cell(items, index):
        found.append(f"{cell.share:.0%} of the work was where {cell.text}")
    for removed, added in _differences(present.placement.map, best.placement.map):
        work = sum(before[leaf] for leaf in removed)
        heaviest = max(after[leaf] for leaf in added)
        what = f"{_listed(removed)} had {work / total:.0%} of the work"
        if len(added) == 1:
            found.append(f"{what}: merged into {added[0]}")
        else:
            into = f"cut into {len(added)} partitions with {heaviest / total:.0%} at the most"
            found.append(f"{what}: {into}")
    found += _moves(proposal, total, is_shared)
    was, is_then = present.assignment.imbalance, best.assignment.imbalance
    found = found[: MOST_REASONS - 1]
    found.append(
        f"prediction: the busiest configurator goes from {was:.2f} to {is_then:.2f} times the mean"
    )
    return tuple(text[:_MOST_TEXT] for text in found)


def _moves(proposal: Proposal, total: float, is_shared: bool) -> Iterator[str]:
    """The partitions that stay as they are, and get another owner."""
    if is_shared:
        return
    before = proposal.present.assignment.owners
    work = proposal.best.load.work
    after = proposal.best.assignment.owners
    moving = [leaf for leaf in after if leaf in before and before[leaf] != after[leaf]]
    for leaf in sorted(moving, key=lambda leaf: (-work[leaf], leaf)):
        way = f"moves from {before[leaf]} to {after[leaf]}"
        yield f"{leaf} has {work[leaf] / total:.0%} of the work: it {way}"


def hot_cell(items: Sequence[Weighted], index: Index) -> HotCell | None:
    """The narrowest part of a space that has half of the work, in words; None if it is all of it.

    Bits are fixed one by one, from the first of each attribute on, as long as half of the work is
    left. Regions that leave a bit open are not counted where it is fixed.
    """
    total = sum(item.weight for item in items)
    inside = list(items)
    cell = EVERYTHING
    weight = total
    while total:
        best: tuple[float, int, Region] | None = None
        for place in _next_places(cell, index):
            bit = 1 << (WIDTH - 1 - place)
            for bits in (cell.bits, cell.bits | bit):
                wanted = Region(bits, cell.mask | bit)
                there = sum(item.weight for item in inside if wanted.covers(item.region))
                if best is None or there > best[0]:
                    best = there, place, wanted
        if best is None or best[0] < _HOT * total:
            break
        weight, _, cell = best
        inside = [item for item in inside if cell.covers(item.region)]
    text = conjunction_text(index.space, index.conjunction(cell))
    return None if text == "true" else HotCell(text, weight / total)


def _next_places(cell: Region, index: Index) -> Iterator[int]:
    """The bits that may be fixed next: the next one of the dz, or of each axis that has words."""
    if index.space.index.kind == "zorder":
        if cell.size < sum(axis.width for axis in index.axes):
            yield cell.size
        return
    start = 0
    for axis in index.axes:
        fixed = (cell.mask >> (WIDTH - start - axis.width) & ((1 << axis.width) - 1)).bit_count()
        if fixed < axis.width and axis.ranges((0, 0)) is not None:
            yield start + fixed
        start += axis.width


def _differences(
    current: PartitionMap, target: PartitionMap
) -> Iterator[tuple[list[str], list[str]]]:
    """The partitions that go and those that come, for each part of the tree that differs."""
    before, after = iter(current.leaves()), iter(target.leaves())
    is_lpm = current.plan == "lpm"
    todo = [(current.root, target.root)]
    while todo:
        old, new = todo.pop()
        if old is not None and new is not None and old.bit == new.bit:
            children = [(old.zero, new.zero), (old.one, new.one)]
            # Maps list their leaves in this order: 0, 1, not fixed.
            todo += reversed(children if is_lpm else [*children, (old.open, new.open)])
            continue
        removed = [next(before) for _ in range(_count(old, is_lpm))]
        added = [next(after) for _ in range(_count(new, is_lpm))]
        if old != new:
            yield removed, added


def _count(node: Node | None, is_lpm: bool) -> int:
    """The number of leaves below a node."""
    if node is None:
        return 1
    children = (node.zero, node.one) if is_lpm else (node.zero, node.one, node.open)
    return sum(_count(child, is_lpm) for child in children)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
