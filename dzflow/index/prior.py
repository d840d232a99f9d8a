"""A fixed sample of likely filters, for spaces of which only the schema is known."""

from random import Random

from dzflow.attribute import Attribute
from dzflow.index.axes import Axis, HashAxis, NumberAxis, OrderAxis, Span
from dzflow.index.base import Box
from dzflow.space import Space

_ATTRIBUTES_NAMED = (1, 2, 2, 2, 3, 3, 4)  # drawn from, so most filters name two or three


def typical_boxes(space: Space, axes: tuple[Axis, ...], count: int) -> list[Box]:
    """Boxes that filters on a space may ask for; the same ones every time.

    Numbers are asked for in ranges from a half down to a 64th of the domain, some open to one side;
    enums, booleans and strings mostly by equality.
    """
    random = Random(count)  # noqa: S311 (a sample, not a secret)
    by_name: dict[str, list[tuple[int, Axis]]] = {}
    for number, axis in enumerate(axes):
        by_name.setdefault(axis.attribute, []).append((number, axis))
    boxes = []
    for _ in range(count):
        named = min(random.choice(_ATTRIBUTES_NAMED), len(space.attributes))
        box: Box = {}
        for attribute in random.sample(space.attributes, named):
            box.update(_wanted(random, attribute, by_name[attribute.name]))
        boxes.append(box)
    return boxes


def _wanted(random: Random, attribute: Attribute, axes: list[tuple[int, Axis]]) -> Box:
    by_equality = attribute.type in ("enum", "bool", "string") and random.random() < 0.8
    box: Box = {}
    for number, axis in axes:
        if by_equality:
            code = random.randrange(1 << axis.width)
            box[number] = ((code, code),)
        elif not isinstance(axis, HashAxis):
            box[number] = (_range(random, axis),)
    return box


def _range(random: Random, axis: Axis) -> Span:
    assert isinstance(axis, NumberAxis | OrderAxis)
    every = 1 << axis.width
    size = max(1, int(every * 2 ** random.uniform(-6, -1)))
    first = random.randrange(every - size + 1)
    kind = random.random()
    if kind < 0.15:
        return (0, first + size - 1)
    if kind < 0.3:
        return (first, every - 1)
    return (first, first + size - 1)
