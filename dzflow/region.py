"""Regions of an event space: ternary patterns of 96 bits, and their algebra.

A region fixes the bits that its mask names and leaves the others open. Bits are counted from the
most significant one, so that a dz-expression of the thesis is a region whose mask is a prefix.
"""

from collections.abc import Iterable, Iterator

import msgspec

from dzflow.errors import BadInput

WIDTH = 96
FULL = (1 << WIDTH) - 1


class BadRegion(BadInput):
    """A text that is not a region."""


class Region(msgspec.Struct, frozen=True, order=True, gc=False):
    """The events whose pattern agrees with `bits` wherever `mask` is set; `bits` is 0 elsewhere."""

    bits: int
    mask: int

    @classmethod
    def parse(cls, text: str) -> "Region":
        """Read the text form: `0`, `1` and `*` from the first bit on; open bits at the end may go.

        >>> str(Region.parse("1*0"))
        '1*0'
        """
        if len(text) > WIDTH or text.strip("01*"):
            raise BadRegion(
                f"not a region: {text[:WIDTH]!r}; write up to {WIDTH} characters out of 0, 1 and *"
            )
        padded = text.ljust(WIDTH, "*")
        bits = int(padded.replace("*", "0"), 2)
        mask = int(padded.replace("0", "1").replace("*", "0"), 2)
        return cls(bits, mask)

    def __str__(self) -> str:
        text = "".join(
            "*" if fixed == "0" else bit
            for bit, fixed in zip(f"{self.bits:096b}", f"{self.mask:096b}", strict=True)
        )
        return text.rstrip("*") or "*"

    @property
    def size(self) -> int:
        """How many bits are fixed; the fewer, the coarser the region."""
        return self.mask.bit_count()

    @property
    def is_dz(self) -> bool:
        """Whether the fixed bits are a prefix."""
        return is_prefix(self.mask)

    def holds(self, point: int) -> bool:
        """Whether an event's full pattern lies in this region."""
        return point & self.mask == self.bits

    def covers(self, other: "Region") -> bool:
        """Whether every event of `other` is in this region (a region covers itself)."""
        return other.mask & self.mask == self.mask and other.bits & self.mask == self.bits

    def overlaps(self, other: "Region") -> bool:
        """Whether some event is in both."""
        return not (self.bits ^ other.bits) & self.mask & other.mask

    def intersection(self, other: "Region") -> "Region | None":
        """The events that are in both, always one region; None if there are none."""
        if not self.overlaps(other):
            return None
        return Region(self.bits | other.bits, self.mask | other.mask)

    def cells(self, mask: int) -> Iterator["Region"]:
        """The parts of this region on the grid that also fixes the bits of `mask`."""
        bits = [self.bits]
        for bit in _fixed(mask & ~self.mask):
            bits = [b | choice for b in bits for choice in (0, bit)]
        for b in bits:
            yield Region(b, self.mask | mask)


EVERYTHING = Region(0, 0)


def prefix_mask(length: int) -> int:
    """The mask that fixes the first `length` bits."""
    return FULL ^ (FULL >> length)


def is_prefix(mask: int, full: int = FULL) -> bool:
    """Whether a mask fixes leading bits only; `full` fixes all bits, by default of a region."""
    open_bits = full ^ mask
    return not open_bits & (open_bits + 1)


def _fixed(mask: int) -> Iterator[int]:
    """The single bits of a mask, the leading one first."""
    while mask:
        bit = 1 << (mask.bit_length() - 1)
        yield bit
        mask ^= bit


def maximal(regions: Iterable[Region]) -> tuple[Region, ...]:
    """The regions that no other one covers, each once, in order."""
    kept: list[Region] = []
    for region in sorted(set(regions), key=lambda r: r.size):
        if not any(k.covers(region) for k in kept):
            kept.append(region)
    return tuple(sorted(kept))


def normal(regions: Iterable[Region]) -> tuple[Region, ...]:
    """The same events with no covered member and no buddies left.

    Buddies are two regions of one mask that differ in its last bit only; together they are the
    region without that bit. Merging on the last bit keeps dz-expressions what they are.
    """
    by_mask: dict[int, set[int]] = {}
    for region in regions:
        by_mask.setdefault(region.mask, set()).add(region.bits)
    # Removing its last bit makes a mask smaller, so going down visits merged regions again.
    for mask in _descending(by_mask):
        last = mask & -mask
        cells = by_mask[mask]
        for bits in [b for b in cells if last and not b & last and b | last in cells]:
            cells -= {bits, bits | last}
            by_mask.setdefault(mask ^ last, set()).add(bits)
    return maximal(Region(bits, mask) for mask, cells in by_mask.items() for bits in cells)


def _descending(by_mask: dict[int, set[int]]) -> Iterator[int]:
    """The keys from large to small, also those that are added on the way below the current one."""
    todo = max(by_mask, default=None)
    while todo is not None:
        yield todo
        done = todo
        todo = max((mask for mask in by_mask if mask < done), default=None)
