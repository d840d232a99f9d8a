"""How subscriptions use the shapes of a space, and what each shape lets through. Pure."""

import logging
from collections.abc import Iterable

from configurators.state.spaces import LoadedSpace
from configurators.store.model import Record
from configurators.streams.packing import unpack_regions
from dispatcher.views import ShapesUsage, ShapeUse
from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK, parse_filter
from dzflow.index.axes import Axis, HashAxis, OrderAxis
from dzflow.index.base import Index
from dzflow.index.fields import FieldsIndex, Shape
from dzflow.region import Region

_log = logging.getLogger(__name__)


class _Use:
    def __init__(self) -> None:
        self.subscriptions = self.regions = 0
        self.let_through = self.unwanted = 0.0  # shares of all events

    @property
    def share(self) -> float | None:
        return round(self.unwanted / self.let_through, 4) if self.let_through else None


def count_shapes(
    space: LoadedSpace, records: Iterable[Record], note: str | None = None
) -> ShapesUsage:
    """The use of each shape by active subscriptions, and all of them together.

    Each region counts with its volume: the share of events in it, if all were equally likely. An
    index without a dictionary has no items.
    """
    version = space.current
    index, total = version.index, _Use()
    uses = {shape: _Use() for shape in index.shapes} if isinstance(index, FieldsIndex) else {}
    for record in records:
        packed = record.regions.get(version.version)
        if record.kind != "subscription" or record.state != "active" or packed is None:
            continue
        regions = unpack_regions(packed)
        try:
            wanted = parse_filter(version.space, record.filter, STORED_WORK)
        except BadInput as error:
            _log.error("the filter of %s cannot be used: %s", record.id, error)
            continue
        volumes = [index.region_volume(region) for region in regions]
        inside = sum(index.volume(index.box(part)) for part in wanted.any)
        unwanted = max(0.0, 1.0 - inside / sum(volumes)) if regions else 0.0
        touched = {id(total): total}
        for region, volume in zip(regions, volumes, strict=True):
            found = [total]
            if isinstance(index, FieldsIndex):
                found.append(uses.setdefault(_shape(index, region), _Use()))
            for use in found:
                use.regions += 1
                use.let_through += volume
                use.unwanted += volume * unwanted
                touched[id(use)] = use
        for use in touched.values():
            use.subscriptions += 1
    items = [
        ShapeUse(
            list(shape),
            shape_text(index, shape),
            use.subscriptions,
            use.regions,
            use.share,
            round(use.unwanted / total.unwanted, 4) if use.regions and total.unwanted else None,
        )
        for shape, use in uses.items()
    ]
    items.sort(key=lambda item: -item.regions)
    return ShapesUsage(
        space.name,
        version.version,
        total.subscriptions,
        total.regions,
        total.share,
        items,
        note,
    )


def _shape(index: Index, region: Region) -> Shape:
    """How many leading bits a region fixes on each axis."""
    return tuple(
        axis.width - (last - first).bit_length()
        for axis, ((first, last),) in zip(index.axes, index.spans(region), strict=True)
    )


def shape_text(index: Index, shape: Shape) -> str:
    """A shape in words, such as `price to 1/16, symbol exactly`."""
    exact = {one.name for one in index.space.attributes if one.type in ("enum", "bool")}
    fixed = [
        _axis_text(axis, length, axis.attribute in exact)
        for axis, length in zip(index.axes, shape, strict=True)
        if length
    ]
    return ", ".join(fixed) or "everything"


def _axis_text(axis: Axis, length: int, exact: bool) -> str:
    if exact and length == axis.width:
        return f"{axis.attribute} exactly"
    if isinstance(axis, HashAxis):
        return f"{axis.attribute} by {length} bits of its hash"
    start = "the beginning of " if isinstance(axis, OrderAxis) else ""
    return f"{start}{axis.attribute} to 1/{1 << length}"
