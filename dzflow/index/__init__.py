"""The index: from events to full patterns, from filters to regions, in several kinds."""

import warnings
from collections.abc import Iterable

from dzflow.errors import LossWarning
from dzflow.index.base import Box, Index
from dzflow.index.fields import BadShape, FieldsIndex, Shape
from dzflow.index.shapes import Sampled, learn_shapes, starting_shapes
from dzflow.index.zorder import ZOrderIndex
from dzflow.region import WIDTH
from dzflow.space import Space

__all__ = [
    "BadShape",
    "Box",
    "FieldsIndex",
    "Index",
    "Sampled",
    "Shape",
    "ZOrderIndex",
    "build_index",
    "learn_shapes",
]


def build_index(space: Space, version: int = 0, shapes: Iterable[Shape] | None = None) -> Index:
    """The index that a space asks for; without `shapes`, a dictionary from the schema alone.

    Warns with LossWarning if the attributes do not fit into an address without loss.
    """
    index: Index
    if space.index.kind == "zorder":
        index = ZOrderIndex(space, version)
    else:
        index = FieldsIndex(space, version, starting_shapes(space) if shapes is None else shapes)
    if index.lost:
        warnings.warn(
            f"space {space.name!r} does not fit into {WIDTH} bits: switches cannot tell all values "
            f"apart of {', '.join(index.lost)}; some unwanted events will reach the hosts",
            LossWarning,
            stacklevel=2,
        )
    return index
