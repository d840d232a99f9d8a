"""Whether a filter lies within others taken together; exact on keys, and bounded."""

from collections.abc import Mapping, Sequence

from dzflow.errors import BadInput
from dzflow.filters import Conjunction
from dzflow.intervals import Ranges, complement, intersect
from dzflow.space import Space

_MAX_WORK = 20_000  # pieces of conjunctions that are looked at


class TooHardToCompare(BadInput):
    """Whether one filter lies within others takes too much work to find out."""

    def __init__(self) -> None:
        super().__init__(
            "it takes too much work to find out whether the filter lies within what is permitted;"
            " use fewer alternatives"
        )


def lies_within(space: Space, inner: Sequence[Conjunction], outer: Sequence[Conjunction]) -> bool:
    """Whether every event that matches one of the inner conjunctions matches an outer one.

    Several outer conjunctions may cover an inner one together. TooHardToCompare if that takes too
    much work to decide.
    """
    search = _Search(space, outer)
    return all(search.is_covered(part.ranges, 0) for part in inner)


class _Search:
    """Takes what outer conjunctions cover off an inner one, until nothing or something is left."""

    def __init__(self, space: Space, outer: Sequence[Conjunction]) -> None:
        self._domains: Mapping[str, Ranges] = {a.name: (a.domain,) for a in space.attributes}
        # The coarse ones first: what they cover need not be cut into pieces.
        self._outer = sorted(outer, key=lambda part: len(part.ranges))
        self._work = _MAX_WORK

    def is_covered(self, part: Mapping[str, Ranges], at: int) -> bool:
        """Whether the outer conjunctions from the given place on cover a part."""
        if at == len(self._outer):
            return False
        self._work -= 1 + sum(map(len, part.values())) // 8
        if self._work < 0:
            raise TooHardToCompare
        left = dict(part)
        outside: list[dict[str, Ranges]] = []
        for name, ranges in self._outer[at].ranges.items():
            (domain,) = self._domains[name]
            given = left.get(name, (domain,))
            beyond = intersect(given, complement(ranges, domain))
            if beyond:
                outside.append({**left, name: beyond})
            left[name] = intersect(given, ranges)
            if not left[name]:
                return self.is_covered(part, at + 1)  # the two have nothing in common
        return all(self.is_covered(piece, at + 1) for piece in outside)
