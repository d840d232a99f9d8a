"""The interface of all kinds of index."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from dzflow.filters import Conjunction, Filter
from dzflow.index.axes import Axis, Span, make_axes
from dzflow.intervals import Key, Ranges, intersect
from dzflow.region import Region
from dzflow.space import Space

Box = dict[int, tuple[Span, ...]]  # the codes wanted on each axis that is not left open


class Index(ABC):
    """Turns events into full patterns and filters into regions."""

    def __init__(self, space: Space, version: int = 0) -> None:
        self.space = space
        self.version = version
        self.axes: tuple[Axis, ...]
        self.lost: tuple[str, ...]  # attributes whose bits cannot tell all their values apart
        self.axes, self.lost = make_axes(space)
        self._axes_of: dict[str, list[tuple[int, Axis]]] = {a.name: [] for a in space.attributes}
        for number, axis in enumerate(self.axes):
            self._axes_of[axis.attribute].append((number, axis))

    def point(self, keys: Sequence[Key]) -> int:
        """The full pattern of an event, given as `Space.keys` encodes it."""
        positions = self.space.positions
        codes = [axis.code(keys[positions[axis.attribute]]) for axis in self.axes]
        return self.pattern(codes)

    @abstractmethod
    def pattern(self, codes: Sequence[int]) -> int:
        """The full pattern of one code per axis."""

    @abstractmethod
    def cover(self, box: Box, budget: int) -> tuple[Region, ...]:
        """Regions, at most `budget` of them and none covered, that hold every event of the box."""

    @abstractmethod
    def spans(self, region: Region) -> list[tuple[Span, ...]]:
        """The codes that a region leaves to each axis."""

    def regions(self, wanted: Filter) -> tuple[Region, ...]:
        """Regions that hold every event that the filter matches.

        The budget is shared by the filter's conjunctions; each gets one region at least.
        """
        budget = self._budget(wanted)
        if len(wanted.any) == 1:
            return self.cover(self.box(wanted.any[0]), budget)
        return self._union(
            region for part in wanted.any for region in self.cover(self.box(part), budget)
        )

    def unwanted(self, wanted: Filter) -> float:
        """The share of the regions' volume that the filter does not want.

        With several conjunctions each is counted by itself: an upper bound where they overlap.
        """
        budget = self._budget(wanted)
        let_through = inside = 0.0
        for part in wanted.any:
            box = self.box(part)
            inside += self.volume(box)
            let_through += sum(self.region_volume(r) for r in self.cover(box, budget))
        return max(0.0, 1.0 - inside / let_through) if let_through else 0.0

    def conjunction(self, region: Region) -> Conjunction:
        """A region as ranges of attribute values; without bits that only a hash fixes."""
        ranges: dict[str, Ranges] = {}
        for axis, spans in zip(self.axes, self.spans(region), strict=True):
            if spans == ((0, (1 << axis.width) - 1),):
                continue
            said = [axis.ranges(span) for span in spans]
            if None not in said:
                found = tuple(interval for part in said for interval in part or ())
                known = ranges.get(axis.attribute)
                ranges[axis.attribute] = intersect(known, found) if known is not None else found
        return Conjunction(ranges)

    def box(self, part: Conjunction) -> Box:
        """The codes that a conjunction wants on each axis that it constrains."""
        box: Box = {}
        for name, ranges in part.ranges.items():
            for number, axis in self._axes_of[name]:
                spans = axis.spans(ranges)
                if spans is not None:
                    box[number] = spans
        return box

    def volume(self, box: Box) -> float:
        """The share of all events that lie in a box, if all were equally likely."""
        volume = 1.0
        for number, spans in box.items():
            axis = self.axes[number]
            volume *= sum(axis.weight(span) for span in spans)
        return volume

    def region_volume(self, region: Region) -> float:
        """The share of all events that lie in a region, if all were equally likely."""
        volume = 1.0
        for axis, spans in zip(self.axes, self.spans(region), strict=True):
            volume *= sum(axis.weight(span) for span in spans)
        return volume

    @abstractmethod
    def _union(self, regions: Iterable[Region]) -> tuple[Region, ...]:
        """The regions of several conjunctions as one set."""

    def _budget(self, wanted: Filter) -> int:
        return max(1, self.space.index.budget // len(wanted.any))
