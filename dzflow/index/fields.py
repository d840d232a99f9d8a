"""The `fields` index: every axis has its own bit field, regions are cells of a shape's grid."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from dzflow.errors import BadInput
from dzflow.index.axes import Span
from dzflow.index.base import Box, Index
from dzflow.region import EVERYTHING, WIDTH, Region, maximal
from dzflow.space import Space

Shape = tuple[int, ...]  # how many leading bits of each axis are fixed

_MOST_KEPT = 4_096  # sets of axes whose usable shapes are remembered
_ROUNDING = 1 - 1e-9  # volumes are products of rounded numbers


class BadShape(BadInput):
    """A shape that does not fit the axes of its space."""


class FieldsIndex(Index):
    """Regions fix leading bits of some axes and nothing of the others.

    The shapes are a dictionary; events do not depend on it. The shape that fixes nothing is always
    part of it, so that each filter has a cover.
    """

    def __init__(self, space: Space, version: int, shapes: Iterable[Shape]) -> None:
        super().__init__(space, version)
        self._shift: list[int] = []  # of each field's last bit
        end = WIDTH
        for axis in self.axes:
            end -= axis.width
            self._shift.append(end)
        nothing = (0,) * len(self.axes)
        self.shapes: tuple[Shape, ...] = tuple(dict.fromkeys([nothing, *shapes]))
        self._grids = [self._grid(shape) for shape in self.shapes]
        self._usable: dict[frozenset[int], tuple[list[_Grid], list[float]]] = {}

    def pattern(self, codes: Sequence[int]) -> int:
        """The full pattern of one code per axis: one field beside the other."""
        bits = 0
        for code, shift in zip(codes, self._shift, strict=True):
            bits |= code << shift
        return bits

    def mask(self, shape: Shape) -> int:
        """The mask of a shape."""
        mask = 0
        for length, axis, shift in zip(shape, self.axes, self._shift, strict=True):
            mask |= ((1 << length) - 1) << (axis.width - length) << shift
        return mask

    def cover(self, box: Box, budget: int) -> tuple[Region, ...]:
        """The box's cells under the shape that lets the least through."""
        grid, sides = self.best_grid(box, budget)
        if not grid.fixed:
            return (EVERYTHING,)
        used = [sides[number, length] for number, length, _ in grid.fixed]
        mask = grid.mask
        return tuple(Region(bits, mask) for bits in self._cells(grid, used))

    def best_grid(self, box: Box, budget: int) -> "tuple[_Grid, dict[tuple[int, int], Side]]":
        """The shape to cover a box with, and how it cuts each axis."""
        usable, volumes = self._usable_grids(frozenset(box))
        # Cells that are too small cannot cover the box within the budget.
        first = bisect_left(volumes, self._volume(box) / budget * _ROUNDING)
        sides: dict[tuple[int, int], Side] = {}
        best, best_rank = usable[-1], (2.0, 0)
        for at in range(first, len(usable)):
            grid = usable[at]
            if grid.cell_volume > best_rank[0]:
                break  # one cell of it lets more through, and so does each of those that follow
            count = 1
            for number, length, _ in grid.fixed:
                side = sides.get((number, length))
                if side is None:
                    side = sides[number, length] = self.side(number, length, box[number])
                count *= side.size
                if count > budget:
                    break
            else:
                rank = count * grid.cell_volume, count
                if rank < best_rank:
                    best, best_rank = grid, rank
        return best, sides

    def _usable_grids(self, axes: frozenset[int]) -> "tuple[list[_Grid], list[float]]":
        """The grids that fix some of these axes only, finest first, and the volumes of their cells.

        Fixing an axis that a box leaves open only multiplies the cells.
        """
        found = self._usable.get(axes)
        if found is None:
            grids = [g for g in self._grids if all(number in axes for number, _, _ in g.fixed)]
            grids.sort(key=lambda grid: grid.cell_volume)
            if len(self._usable) >= _MOST_KEPT:
                self._usable.clear()
            found = self._usable[axes] = grids, [grid.cell_volume for grid in grids]
        return found

    def _volume(self, box: Box) -> float:
        """The share of all full patterns that lie in a box."""
        volume = 1.0
        for number, spans in box.items():
            size = sum([last + 1 - first for first, last in spans])
            volume *= size / (1 << self.axes[number].width)
        return volume

    def spans(self, region: Region) -> list[tuple[Span, ...]]:
        """The codes that a region leaves to each axis: one run, as its leading bits are fixed."""
        spans: list[tuple[Span, ...]] = []
        for axis, shift in zip(self.axes, self._shift, strict=True):
            every = (1 << axis.width) - 1
            first = region.bits >> shift & every
            spans.append(((first, first | (every & ~(region.mask >> shift))),))
        return spans

    def cells(self, shape: Shape, sides: Sequence["Side"]) -> Iterator[int]:
        """The bits of the cells that cut sides span, one side per axis that the shape fixes."""
        return self._cells(self._grid(shape), sides)

    def _cells(self, grid: "_Grid", sides: Sequence["Side"]) -> Iterator[int]:
        fields = []
        for (number, length, shift), side in zip(grid.fixed, sides, strict=True):
            up = shift + self.axes[number].width - length
            fields.append(
                [cell << up for first, last in side.cells for cell in range(first, last + 1)]
            )
        return map(sum, product(*fields))

    def side(self, number: int, length: int, spans: tuple[Span, ...]) -> "Side":
        """How the spans on one axis are cut when `length` bits of it are fixed."""
        down = self.axes[number].width - length
        if len(spans) == 1:
            first, last = spans[0][0] >> down, spans[0][1] >> down
            return Side([(first, last)], last + 1 - first)
        cells: list[Span] = []
        for first, last in spans:
            first, last = first >> down, last >> down
            if cells and first <= cells[-1][1] + 1:
                cells[-1] = (cells[-1][0], last)
            else:
                cells.append((first, last))
        return Side(cells, sum(last + 1 - first for first, last in cells))

    def _grid(self, shape: Shape) -> "_Grid":
        if len(shape) != len(self.axes) or any(
            not 0 <= length <= axis.width for length, axis in zip(shape, self.axes, strict=False)
        ):
            widths = ", ".join(f"{axis.attribute} {axis.width}" for axis in self.axes)
            raise BadShape(f"shape {shape} does not fit the axes of {self.space.name!r}: {widths}")
        fixed = [(n, length, self._shift[n]) for n, length in enumerate(shape) if length]
        return _Grid(self.mask(shape), fixed)

    def _union(self, regions: Iterable[Region]) -> tuple[Region, ...]:
        return maximal(regions)  # merging buddies would leave the dictionary


class _Grid:
    """A shape, ready for use."""

    __slots__ = ("cell_volume", "fixed", "mask")

    def __init__(self, mask: int, fixed: list[tuple[int, int, int]]) -> None:
        self.mask = mask
        self.fixed = fixed  # axis, bits fixed, shift of the field
        self.cell_volume = 0.5 ** mask.bit_count()


class Side(NamedTuple):
    """One axis of a box cut into cells of some length: which, and how many."""

    cells: list[Span]
    size: int
