"""What a dictionary of shapes makes of filters and events. Pure.

A filter is taken by itself: an event that reaches it is unwanted if it does not match this filter,
although another subscription of the same host may want it.
"""

from collections.abc import Sequence

from msgspec import Struct

from dzflow.filters import Filter
from dzflow.index import Index, Sampled
from dzflow.intervals import Key
from dzflow.region import Region
from spark.shapes.model import Basis, Prediction

Filters = Sequence[Sampled[Filter]]
Events = Sequence[Sampled[Sequence[Key]]]

_MOST_MASKS = 256  # whose events are kept by region


class Traffic(Struct, frozen=True):
    """How much reaches the regions of all filters, and how much of that is wanted."""

    delivered: float
    wanted: float

    @property
    def unwanted(self) -> float:
        """The share that nobody asked for."""
        return max(0.0, 1.0 - self.wanted / self.delivered) if self.delivered else 0.0


class Cover(Struct, frozen=True):
    """The regions of all filters under one dictionary."""

    index: Index
    regions: tuple[tuple[Region, ...], ...]  # of each filter


class EventIndex:
    """Finds the sampled events of regions."""

    def __init__(self, index: Index, events: Events) -> None:
        """Any dictionary will do: the patterns of events do not depend on it."""
        self._events = events
        self._points = [index.point(keys) for keys, _ in events]
        self._by_mask: dict[int, dict[int, list[int]]] = {}

    def traffic(self, wanted: Filter, regions: Sequence[Region]) -> Traffic:
        """The events in the regions of one filter, which hold all events that it matches."""
        inside: set[int] = set()
        for region in regions:
            inside.update(self._of(region.mask).get(region.bits, ()))
        found = [self._events[n] for n in sorted(inside)]
        matching = (weight for keys, weight in found if wanted.matches(keys))
        return Traffic(sum(weight for _, weight in found), sum(matching))

    def _of(self, mask: int) -> dict[int, list[int]]:
        by_bits = self._by_mask.get(mask)
        if by_bits is None:
            if len(self._by_mask) >= _MOST_MASKS:
                self._by_mask.clear()
            by_bits = self._by_mask[mask] = {}
            for n, point in enumerate(self._points):
                by_bits.setdefault(point & mask, []).append(n)
        return by_bits


def cover(index: Index, filters: Filters) -> Cover:
    """The regions of all filters."""
    return Cover(index, tuple(index.regions(wanted) for wanted, _ in filters))


def find_traffic(covered: Cover, filters: Filters, events: EventIndex | None) -> Traffic:
    """What reaches the filters' regions; without events, if all are equally likely."""
    delivered = wanted = 0.0
    for (each, weight), regions in zip(filters, covered.regions, strict=True):
        found = events.traffic(each, regions) if events else _uniform(covered.index, each, regions)
        delivered += weight * found.delivered
        wanted += weight * found.wanted
    return Traffic(delivered, wanted)


def _uniform(index: Index, wanted: Filter, regions: Sequence[Region]) -> Traffic:
    """An upper bound where conjunctions of the filter, or their regions, overlap."""
    inside = sum(index.volume(index.box(part)) for part in wanted.any)
    through = sum(index.region_volume(region) for region in regions)
    return Traffic(max(through, inside), inside)


def predict(covered: Cover, filters: Filters, traffic: Traffic, shapes: int) -> Prediction:
    """The figures of one dictionary."""
    total = sum(weight for _, weight in filters) or 1.0
    regions = sum(
        weight * len(found) for (_, weight), found in zip(filters, covered.regions, strict=True)
    )
    masks = {region.mask for found in covered.regions for region in found}
    return Prediction(shapes, len(masks), regions / total, traffic.unwanted)


def basis_of(traffic: Traffic | None) -> Basis:
    """Events say nothing if none of them is in any region."""
    return "events" if traffic and traffic.delivered else "uniform"
