"""A leaf of a partition map in words: ranges of attributes. Pure."""

from dzflow.filters import conjunction_text
from dzflow.index import Index
from dzflow.region import WIDTH, Region

_MOST_TEXT = 300  # characters


def leaf_words(index: Index, leaf: str) -> str:
    """What the regions of a leaf have in common, such as `price < 500; symbol not narrowed`.

    A leaf of plan `legs` is named by bits that are 0, 1, or not fixed; one of `lpm` by a dz. A bit
    that only tells hashes apart has no words. `parts of` says that there are gaps: a later bit of
    an attribute is fixed, and an earlier one is not.
    """
    bits = mask = 0
    open_places = []
    for place, value in _steps(leaf):
        if value == "x":
            open_places.append(place)
            continue
        bit = 1 << (WIDTH - 1 - place)
        mask |= bit
        bits |= bit if value == "1" else 0
    fixed = index.conjunction(Region(bits, mask))
    text = conjunction_text(index.space, fixed)
    parts = [f"parts of {text}" if _has_gaps(index, mask) else text] if fixed.ranges else []
    parts += [
        f"{name} not narrowed{' further' if name in fixed.ranges else ''}"
        for name in dict.fromkeys(_attribute(index, place) for place in open_places)
        if name
    ]
    found = "; ".join(parts) or "everything"
    return found if len(found) <= _MOST_TEXT else f"{found[: _MOST_TEXT - 1]}…"


def _steps(leaf: str) -> list[tuple[int, str]]:
    """The bits that a leaf's name fixes (0, 1) or says to be open (x)."""
    if leaf == "all":
        return []
    if "-" not in leaf:
        return list(enumerate(leaf))
    steps = (step.partition("-") for step in leaf.split("."))
    return [(int(place), value) for place, _, value in steps]


def _has_gaps(index: Index, mask: int) -> bool:
    """Whether an axis has a fixed bit after one that is not."""
    if index.space.index.kind == "zorder":
        return False
    start = 0
    for axis in index.axes:
        start += axis.width
        fixed = (mask >> (WIDTH - start)) & ((1 << axis.width) - 1)
        count = fixed.bit_count()
        if fixed != ((1 << count) - 1) << (axis.width - count):
            return True
    return False


def _attribute(index: Index, place: int) -> str:
    """The attribute that a bit belongs to; "" if the bits of attributes are mixed."""
    if index.space.index.kind == "zorder":
        return ""
    start = 0
    for axis in index.axes:
        if start <= place < start + axis.width:
            return axis.attribute
        start += axis.width
    return ""
