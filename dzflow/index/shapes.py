"""Choose the dictionary of shapes: greedily, by the unwanted traffic that each shape saves."""

import heapq
from collections.abc import Iterable, Sequence
from math import log2, prod
from typing import Generic, NamedTuple, TypeVar

from dzflow.filters import Filter
from dzflow.index.base import Box
from dzflow.index.fields import FieldsIndex, Shape, Side
from dzflow.index.prior import typical_boxes
from dzflow.intervals import Key
from dzflow.space import Space

_SAMPLE = 800
_TYPICAL = 200  # typical filters beside those that are known
_CANDIDATES_PER_SHAPE = 12

_Item = TypeVar("_Item", covariant=True)


def starting_shapes(space: Space) -> tuple[Shape, ...]:
    """A good dictionary from the schema alone."""
    bare = FieldsIndex(space, 0, ())
    return _choose(bare, _typical_cuts(bare, _SAMPLE, 1.0), [])


class Sampled(NamedTuple, Generic[_Item]):
    """A member of a sample, and how many of all it stands for."""

    item: _Item
    weight: float = 1.0


def learn_shapes(
    space: Space,
    filters: Iterable[Sampled[Filter]],
    events: Iterable[Sampled[Sequence[Key]]] = (),
    typical: float = 0.0,
    known: Iterable[Shape] = (),
    entry: float = 0.0,
) -> tuple[Shape, ...]:
    """A dictionary for a sample of filters and, if there is one, of events (as `Space.keys`).

    Without events all are taken as equally likely. Typical filters for the schema count as well,
    with `typical` of the weight of all filters, so that new filters of other kinds find shapes.
    The `known` shapes are candidates, too. `entry` is the share of all events that one more cell
    for a filter has to keep away.
    """
    bare = FieldsIndex(space, 0, ())
    most = space.index.budget
    cuts = [
        _Cut(bare, bare.box(part), weight, max(1, most // len(wanted.any)))
        for wanted, weight in filters
        for part in wanted.any
    ]
    if typical:
        weight = typical * sum(cut.weight for cut in cuts) / _TYPICAL
        cuts += _typical_cuts(bare, _TYPICAL, weight)
    points = [Sampled(bare.point(keys), weight) for keys, weight in events]
    return _choose(bare, cuts, points, known, entry)


def _typical_cuts(bare: FieldsIndex, count: int, weight: float) -> "list[_Cut]":
    boxes = typical_boxes(bare.space, bare.axes, count)
    return [_Cut(bare, box, weight, bare.space.index.budget) for box in boxes]


def _choose(
    bare: FieldsIndex,
    cuts: "list[_Cut]",
    points: list[Sampled[int]],
    known: Iterable[Shape] = (),
    entry: float = 0.0,
) -> tuple[Shape, ...]:
    limit = bare.space.index.shapes - 1  # the shape that fixes nothing is always there
    seen: dict[Shape, float] = {}
    for cut in cuts:
        for shape in _steps(cut):
            seen[shape] = seen.get(shape, 0.0) + cut.weight
    likely = sorted(seen, key=lambda shape: -seen[shape])[: limit * _CANDIDATES_PER_SHAPE]
    candidates = list(dict.fromkeys([*likely, *known]))
    through = [_let_through(bare, shape, cuts, points) for shape in candidates]

    # Lazy greedy: as others are chosen a shape's saving shrinks (with events, nearly always), so
    # one that is still the greatest after it was counted again is the greatest of all.
    now = [_Through(1.0, 1, 1.0)] * len(cuts)
    queue = [(-_saving(cuts, now, row, entry), n) for n, row in enumerate(through)]
    heapq.heapify(queue)
    chosen: list[Shape] = []
    while queue and len(chosen) < limit:
        claimed, n = heapq.heappop(queue)
        saving = _saving(cuts, now, through[n], entry)
        if saving <= 0:
            continue
        if queue and -saving > queue[0][0] and -saving > claimed:
            heapq.heappush(queue, (-saving, n))
            continue
        chosen.append(candidates[n])
        for i, through_i in through[n].items():
            now[i] = min(now[i], through_i)
    return tuple(chosen)


class _Through(NamedTuple):
    """What a shape makes of a box: the index chooses by volume and cells, we by traffic."""

    volume: float
    cells: int
    traffic: float


def _saving(
    cuts: "list[_Cut]", now: list[_Through], row: dict[int, _Through], entry: float
) -> float:
    """The traffic that boxes are spared when they can use one more shape, less what cells cost."""
    saving = 0.0
    for i, (volume, cells, traffic) in row.items():
        was = now[i]
        if volume < was.volume or (volume == was.volume and cells < was.cells):
            saving += cuts[i].weight * (was.traffic - traffic + entry * (was.cells - cells))
    return saving


class _Cut:
    """A box and how it is cut at each length of each axis, found out when asked for."""

    def __init__(self, index: FieldsIndex, box: Box, weight: float, budget: int) -> None:
        self.index = index
        self.box = box
        self.weight = weight
        self.budget = budget
        self._sides: dict[tuple[int, int], Side] = {}

    def side(self, axis: int, length: int) -> Side:
        side = self._sides.get((axis, length))
        if side is None:
            side = self._sides[axis, length] = self.index.side(axis, length, self.box[axis])
        return side


def _steps(cut: _Cut) -> list[Shape]:
    """The shapes on the way from nothing to the finest that the budget allows for this box.

    Each step fixes more bits of one axis: those that shrink the cover most for the cells they cost.
    """
    shape = [0] * len(cut.index.axes)
    steps: list[Shape] = []
    count = 1
    while True:
        best: tuple[float, int, int] | None = None
        for axis in cut.box:
            now = cut.side(axis, shape[axis]).size
            for length in range(shape[axis] + 1, cut.index.axes[axis].width + 1):
                more = cut.side(axis, length).size / now
                if count * more > cut.budget:
                    break
                shrinks = 2.0 ** (length - shape[axis]) / more
                if shrinks > 1:
                    rank = log2(shrinks) / (1 + log2(more))
                    if best is None or rank > best[0]:
                        best = (rank, axis, length)
        if best is None:
            return steps
        _, axis, length = best
        count = count // cut.side(axis, shape[axis]).size * cut.side(axis, length).size
        shape[axis] = length
        steps.append(tuple(shape))


def _let_through(
    index: FieldsIndex, shape: Shape, cuts: list[_Cut], points: list[Sampled[int]]
) -> dict[int, _Through]:
    """For each box that the shape can cover, the volume of its cells and their share of traffic."""
    fixed = [(axis, length) for axis, length in enumerate(shape) if length]
    mask = index.mask(shape)
    events: dict[int, float] = {}
    for point, weight in points:
        events[point & mask] = events.get(point & mask, 0.0) + weight
    total = sum(weight for _, weight in points)
    one = total / len(points) if points else 1.0
    through = {}
    for i, cut in enumerate(cuts):
        if any(axis not in cut.box for axis, _ in fixed):
            continue
        sides = [cut.side(axis, length) for axis, length in fixed]
        count = prod(side.size for side in sides)
        if count > cut.budget:
            continue
        volume = traffic = count * 0.5 ** mask.bit_count()
        if points:
            # The volume counts as one more event: it decides where the sample is silent.
            seen = sum(events.get(cell, 0.0) for cell in index.cells(shape, sides))
            traffic = (volume * one + seen) / (one + total)
        through[i] = _Through(volume, count, traffic)
    return through
