"""Choose the dictionary of shapes: greedily, by the unwanted traffic that each shape saves."""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2, prod

from dzflow.filters import Filter
from dzflow.index.base import Box
from dzflow.index.fields import FieldsIndex, Shape, Side
from dzflow.index.prior import typical_boxes
from dzflow.intervals import Key
from dzflow.space import Space

_SAMPLE = 800
_CANDIDATES_PER_SHAPE = 12


def starting_shapes(space: Space) -> tuple[Shape, ...]:
    """A good dictionary from the schema alone."""
    bare = FieldsIndex(space, 0, ())
    return _choose(bare, typical_boxes(space, bare.axes, _SAMPLE), [])


def learn_shapes(
    space: Space, filters: Iterable[Filter], events: Iterable[Sequence[Key]] = ()
) -> tuple[Shape, ...]:
    """A dictionary for a sample of filters and, if there is one, of events (as `Space.keys`).

    Without events all are taken as equally likely.
    """
    bare = FieldsIndex(space, 0, ())
    boxes = [bare.box(part) for wanted in filters for part in wanted.any]
    return _choose(bare, boxes, [bare.point(keys) for keys in events])


def _choose(bare: FieldsIndex, boxes: list[Box], points: list[int]) -> tuple[Shape, ...]:
    limit = bare.space.index.shapes - 1  # the shape that fixes nothing is always there
    cuts = [_Cut(bare, box) for box in boxes]
    budget = bare.space.index.budget
    seen = Counter(shape for cut in cuts for shape in _steps(cut, budget))
    candidates = [shape for shape, _ in seen.most_common(limit * _CANDIDATES_PER_SHAPE)]
    through = [_let_through(bare, shape, cuts, budget, points) for shape in candidates]

    # Lazy greedy: as others are chosen a shape's saving shrinks (with events, nearly always), so
    # one that is still the greatest after it was counted again is the greatest of all.
    now = [(1.0, 1.0)] * len(cuts)
    queue = [(-_saving(now, row), n) for n, row in enumerate(through)]
    heapq.heapify(queue)
    chosen: list[Shape] = []
    while queue and len(chosen) < limit:
        claimed, n = heapq.heappop(queue)
        saving = _saving(now, through[n])
        if saving <= 0:
            continue
        if queue and -saving > queue[0][0] and -saving > claimed:
            heapq.heappush(queue, (-saving, n))
            continue
        chosen.append(candidates[n])
        for i, through_i in through[n].items():
            now[i] = min(now[i], through_i)
    return tuple(chosen)


_Through = tuple[float, float]  # volume, traffic: the index chooses by the first, we by the second


def _saving(now: list[_Through], row: dict[int, _Through]) -> float:
    """The traffic that boxes are spared when they can use one more shape."""
    return sum(now[i][1] - traffic for i, (volume, traffic) in row.items() if volume < now[i][0])


class _Cut:
    """A box and how it is cut at each length of each axis, found out when asked for."""

    def __init__(self, index: FieldsIndex, box: Box) -> None:
        self.index = index
        self.box = box
        self._sides: dict[tuple[int, int], Side] = {}

    def side(self, axis: int, length: int) -> Side:
        side = self._sides.get((axis, length))
        if side is None:
            side = self._sides[axis, length] = self.index.side(axis, length, self.box[axis])
        return side


def _steps(cut: _Cut, budget: int) -> list[Shape]:
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
                if count * more > budget:
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
    index: FieldsIndex, shape: Shape, cuts: list[_Cut], budget: int, points: list[int]
) -> dict[int, _Through]:
    """For each box that the shape can cover, the volume of its cells and their share of traffic."""
    fixed = [(axis, length) for axis, length in enumerate(shape) if length]
    mask = index.mask(shape)
    events = Counter(point & mask for point in points)
    through = {}
    for i, cut in enumerate(cuts):
        if any(axis not in cut.box for axis, _ in fixed):
            continue
        sides = [cut.side(axis, length) for axis, length in fixed]
        count = prod(side.size for side in sides)
        if count > budget:
            continue
        volume = traffic = count * 0.5 ** mask.bit_count()
        if points:
            # The volume counts as one more event: it decides where the sample is silent.
            seen = sum(events[cell] for cell in index.cells(shape, sides))
            traffic = (volume + seen) / (1 + len(points))
        through[i] = volume, traffic
    return through
