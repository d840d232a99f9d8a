"""The `zorder` index of the thesis (2.2): axes' bits interleaved, regions are prefixes."""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import prod
from operator import itemgetter

from dzflow.index.axes import Span
from dzflow.index.base import Box, Index
from dzflow.region import WIDTH, Region, normal, prefix_mask
from dzflow.space import Space


class ZOrderIndex(Index):
    """Every bit of a dz halves the space along the next axis in turn."""

    def __init__(self, space: Space, version: int) -> None:
        super().__init__(space, version)
        rounds = max(axis.width for axis in self.axes)
        # Which axis the n-th bit of a dz halves; an axis that is used up is left out.
        self._turns = [
            number
            for bit in range(rounds)
            for number, axis in enumerate(self.axes)
            if bit < axis.width
        ]
        self._spread = [self._spread_tables(number) for number in range(len(self.axes))]

    def pattern(self, codes: Sequence[int]) -> int:
        """The full pattern of one code per axis: their bits in turn."""
        bits = 0
        for code, tables in zip(codes, self._spread, strict=True):
            for table in tables:
                bits |= table[code & 0xFF]
                code >>= 8
        return bits

    def cover(self, box: Box, budget: int) -> tuple[Region, ...]:
        """Halve the dz with the most unwanted volume, again and again, while the budget lasts."""
        done: list[Region] = []
        todo: list[_Part] = []

        def keep(bits: int, length: int, codes: list[Span], wanted: int) -> None:
            unwanted = (1 << (len(self._turns) - length)) - wanted
            if unwanted:
                heapq.heappush(todo, (-unwanted, bits, length, codes, wanted))
            else:
                done.append(Region(bits, prefix_mask(length)))

        # Volumes are counted in events, so that they are exact.
        whole = [(0, (1 << axis.width) - 1) for axis in self.axes]
        wanted = prod(
            _common(box[n], whole[n]) if n in box else whole[n][1] + 1 for n in range(len(whole))
        )
        keep(0, 0, whole, wanted)
        while todo:
            _, bits, length, codes, wanted = heapq.heappop(todo)
            number = self._turns[length]
            first, last = codes[number]
            middle = (first + last) // 2
            halves = []
            for side, half in ((0, (first, middle)), (1, (middle + 1, last))):
                if number in box:
                    there = _common(box[number], half)
                    if not there:
                        continue
                    inside = wanted // _common(box[number], (first, last)) * there
                else:
                    inside = wanted // 2
                halves.append((bits | side << (WIDTH - 1 - length), half, inside))
            if len(halves) + len(todo) + len(done) > budget:
                done.append(Region(bits, prefix_mask(length)))
                continue
            for half_bits, half, inside in halves:
                keep(half_bits, length + 1, [*codes[:number], half, *codes[number + 1 :]], inside)
        return normal(done)

    def spans(self, region: Region) -> list[tuple[Span, ...]]:
        """The codes that a region leaves to each axis."""
        starts = [0] * len(self.axes)
        left = [axis.width for axis in self.axes]
        for place in range(region.size):
            number = self._turns[place]
            left[number] -= 1
            starts[number] |= (region.bits >> (WIDTH - 1 - place) & 1) << left[number]
        return [((s, s | ((1 << n) - 1)),) for s, n in zip(starts, left, strict=True)]

    def _spread_tables(self, number: int) -> list[list[int]]:
        """For each byte of an axis's code, lowest first, where its bits go in the pattern."""
        places = [p for p, turn in enumerate(self._turns) if turn == number][::-1]
        bits = [1 << (WIDTH - 1 - place) for place in places]
        return [
            [
                sum(bit for i, bit in enumerate(bits[low : low + 8]) if byte >> i & 1)
                for byte in range(256)
            ]
            for low in range(0, len(bits), 8)
        ]

    def _union(self, regions: Iterable[Region]) -> tuple[Region, ...]:
        return normal(regions)


_end = itemgetter(1)
_Part = tuple[int, int, int, list[Span], int]  # -unwanted, bits, length, codes, wanted


def _common(spans: tuple[Span, ...], span: Span) -> int:
    """How many codes of a span lie in some others, which are disjoint and ascend."""
    first, last = span
    found = 0
    # Long lists of values make many spans, and every halving asks again: skip those before.
    for at in range(bisect_left(spans, first, key=_end), len(spans)):
        a, z = spans[at]
        if a > last:
            break
        found += min(last, z) + 1 - max(first, a)
    return found
