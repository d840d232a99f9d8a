"""The index: from events to full patterns, from filters to regions, in several kinds."""

from collections.abc import Iterable

from dzflow.index.base import Box, Index
from dzflow.index.fields import FieldsIndex, Shape
from dzflow.index.shapes import learn_shapes, starting_shapes
from dzflow.index.zorder import ZOrderIndex
from dzflow.space import Space

__all__ = ["Box", "FieldsIndex", "Index", "Shape", "ZOrderIndex", "build_index", "learn_shapes"]


def build_index(space: Space, version: int = 0, shapes: Iterable[Shape] | None = None) -> Index:
    """The index that a space asks for; without `shapes`, a dictionary from the schema alone."""
    if space.index.kind == "zorder":
        return ZOrderIndex(space, version)
    return FieldsIndex(space, version, starting_shapes(space) if shapes is None else shapes)
