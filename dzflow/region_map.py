"""Find, among hundreds of thousands of regions, those that cover or are covered by one.

Regions are kept by shape (mask). A coverer of a region must have a coarser shape, and the region
cut down to that shape is the only candidate: one probe per coarser shape. The other way round each
shape keeps, for each of its cells that has any, the finer regions below.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from dzflow.region import Region

V = TypeVar("V")


class _Shape(Generic[V]):
    """All regions with one mask, and what lies below each cell of that mask's grid."""

    __slots__ = ("below", "cells", "coarser", "mask")

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.cells: dict[int, V] = {}
        self.below: dict[int, dict[V, None]] = {}  # a dict for its order: results are repeatable
        self.coarser: list[_Shape[V]] = []


class RegionMap(Generic[V]):
    """A mapping from regions to (hashable, distinct) values, searchable by covering."""

    def __init__(self) -> None:
        self._shapes: dict[int, _Shape[V]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[V]:
        for shape in self._shapes.values():
            yield from shape.cells.values()

    def get(self, region: Region) -> V | None:
        """The value at a region, if there is one."""
        shape = self._shapes.get(region.mask)
        return shape.cells.get(region.bits) if shape else None

    def add(self, region: Region, value: V) -> None:
        """Put a value at a region that has none yet."""
        bits = region.bits
        shape = self._shapes.get(region.mask) or self._new_shape(region.mask)
        shape.cells[bits] = value
        for coarser in shape.coarser:
            cell = bits & coarser.mask
            bucket = coarser.below.get(cell)
            if bucket is None:
                coarser.below[cell] = {value: None}
            else:
                bucket[value] = None
        self._size += 1

    def remove(self, region: Region) -> None:
        """Remove a region."""
        shape = self._shapes[region.mask]
        value = shape.cells.pop(region.bits)
        for coarser in shape.coarser:
            cell = region.bits & coarser.mask
            bucket = coarser.below[cell]
            if len(bucket) == 1:
                del coarser.below[cell]
            else:
                del bucket[value]
        self._size -= 1
        if not shape.cells:
            self._drop_empty_shapes()

    def coverers(self, region: Region) -> list[V]:
        """The values of all regions that cover `region`, without `region` itself."""
        bits = region.bits
        shape = self._shapes.get(region.mask)
        coarser = shape.coarser if shape else self._coarser(region.mask)
        found = []
        for other in coarser:
            value = other.cells.get(bits & other.mask)
            if value is not None:
                found.append(value)
        return found

    def covered(self, region: Region) -> Iterable[V]:
        """The values of all regions that `region` covers, without `region` itself."""
        shape = self._shapes.get(region.mask)
        if shape is not None:
            return shape.below.get(region.bits, ())
        return [
            value
            for other in self._finer(region.mask)
            for bits, value in other.cells.items()
            if bits & region.mask == region.bits
        ]

    def overlapping(self, region: Region) -> Iterator[V]:
        """The values of all regions that share an event with `region`; scans most of the map."""
        for shape in self._shapes.values():
            common = shape.mask & region.mask
            wanted = region.bits & common
            if common == shape.mask:
                if wanted in shape.cells:
                    yield shape.cells[wanted]
            else:
                for bits, value in shape.cells.items():
                    if bits & common == wanted:
                        yield value

    def _coarser(self, mask: int) -> list[_Shape[V]]:
        return [s for s in self._shapes.values() if s.mask & mask == s.mask and s.mask != mask]

    def _finer(self, mask: int) -> list[_Shape[V]]:
        return [s for s in self._shapes.values() if s.mask & mask == mask and s.mask != mask]

    def _new_shape(self, mask: int) -> _Shape[V]:
        shape: _Shape[V] = _Shape(mask)
        shape.coarser = self._coarser(mask)
        for finer in self._finer(mask):
            finer.coarser.append(shape)
            for bits, value in finer.cells.items():
                shape.below.setdefault(bits & mask, {})[value] = None
        self._shapes[mask] = shape
        return shape

    def _drop_empty_shapes(self) -> None:
        # An empty shape may come back, and making it again means a scan of all finer regions. So
        # empty ones go only when they are the greater part of what every search has to probe.
        empty = [shape for shape in self._shapes.values() if not shape.cells]
        if 2 * len(empty) > len(self._shapes):
            for shape in empty:
                del self._shapes[shape.mask]
                for finer in self._finer(shape.mask):
                    finer.coarser.remove(shape)


class OverlapMap(Generic[V]):
    """A mapping from regions to values, fast at finding the regions that overlap another one.

    Made for few regions that are asked for often (advertisements): for each pair of a shape kept
    here and a shape asked for, a view by their common bits is made once and kept up to date.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, dict[int, V]] = {}
        self._views: dict[int, dict[int, dict[int, dict[int, V]]]] = {}  # shape, common, cell, bits

    def __iter__(self) -> Iterator[tuple[Region, V]]:
        for mask, cells in self._shapes.items():
            for bits, value in cells.items():
                yield Region(bits, mask), value

    def get(self, region: Region) -> V | None:
        """The value at a region, if there is one."""
        return self._shapes.get(region.mask, {}).get(region.bits)

    def add(self, region: Region, value: V) -> None:
        """Put a value at a region that has none yet."""
        self._shapes.setdefault(region.mask, {})[region.bits] = value
        for common, view in self._views.get(region.mask, {}).items():
            view.setdefault(region.bits & common, {})[region.bits] = value

    def remove(self, region: Region) -> None:
        """Remove a region."""
        cells = self._shapes[region.mask]
        del cells[region.bits]
        for common, view in self._views.get(region.mask, {}).items():
            bucket = view[region.bits & common]
            del bucket[region.bits]
            if not bucket:
                del view[region.bits & common]
        if not cells:
            del self._shapes[region.mask]
            self._views.pop(region.mask, None)

    def overlapping(self, region: Region) -> list[V]:
        """The values of all regions that share an event with `region`."""
        found: list[V] = []
        for mask in self._shapes:
            common = mask & region.mask
            bucket = self._view(mask, common).get(region.bits & common)
            if bucket:
                found.extend(bucket.values())
        return found

    def _view(self, mask: int, common: int) -> dict[int, dict[int, V]]:
        views = self._views.setdefault(mask, {})
        view = views.get(common)
        if view is None:
            view = views[common] = {}
            for bits, value in self._shapes[mask].items():
                view.setdefault(bits & common, {})[bits] = value
        return view
