"""Regions as IPv6 multicast addresses, and back.

| 16 bits: prefix | 10: space | 2: index version | 4: tree | 96: region |
"""

from ipaddress import IPv6Address
from typing import NamedTuple

import msgspec

from dzflow.errors import BadInput
from dzflow.region import FULL, WIDTH, Region

PREFIX = 0xFF1E  # multicast, transient, global; ff0e, the thesis's, belongs to IANA
DELIVERY = int(IPv6Address("ff1e::d2"))  # the address that every subscriber listens to
DELIVERY_MAC = "33:33:00:00:00:d2"
EVENT_PORT = 9700

SPACE_BITS, VERSION_BITS, TREE_BITS = 10, 2, 4
OWN_SPACE = 0  # the number in dzflow's own entries that belong to no space; no space has it
MAX_SPACE = (1 << SPACE_BITS) - 1
MAX_VERSION = (1 << VERSION_BITS) - 1
MAX_TREE = (1 << TREE_BITS) - 1

ALL = (1 << 128) - 1
TREE_MASK = MAX_TREE << WIDTH  # where a mask fixes the tree
_ABOVE_REGION = ALL ^ FULL
_SCOPE = MAX_SPACE << 2 | MAX_VERSION  # space and version, in 12 bits


class BadAddress(BadInput):
    """The address, or a part of it, is not one of dzflow."""


class Match(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """Addresses that agree with `address` where `mask` is set."""

    address: int
    mask: int

    def holds(self, address: int) -> bool:
        """Whether an address matches."""
        return address & self.mask == self.address

    def __str__(self) -> str:
        ones = self.mask.bit_count()
        if self.mask == ALL ^ (ALL >> ones):
            return f"{IPv6Address(self.address)}/{ones}"
        return f"{IPv6Address(self.address)}/{IPv6Address(self.mask)}"


class Scope(NamedTuple):
    """The events of one space as one version of its index writes them."""

    space: int
    version: int = 0
    prefix: int = PREFIX

    def check(self) -> "Scope":
        """This scope, if its numbers fit into an address."""
        if not 0 < self.space <= MAX_SPACE:
            raise BadAddress(f"space number {self.space} is not within 1 to {MAX_SPACE}")
        if not 0 <= self.version <= MAX_VERSION:
            raise BadAddress(f"index version {self.version} is not within 0 to {MAX_VERSION}")
        if self.prefix >> 8 != 0xFF:
            raise BadAddress(f"prefix {self.prefix:#06x} is not one of multicast addresses (ffxx)")
        return self

    def base(self, tree: int) -> int:
        """The address of the all-zero pattern on a tree."""
        if not 0 <= tree <= MAX_TREE:
            raise BadAddress(f"tree number {tree} is not within 0 to {MAX_TREE}")
        return self.prefix << 112 | self.space << 102 | self.version << 100 | tree << WIDTH

    def event(self, point: int, tree: int) -> int:
        """The destination of an event with this full pattern."""
        return self.base(tree) | point

    def match(self, region: Region, tree: int | None = None) -> Match:
        """The match for a region's events on one tree, or on all trees if `tree` is None."""
        if tree is None:
            return Match(self.base(0) | region.bits, (_ABOVE_REGION ^ TREE_MASK) | region.mask)
        return Match(self.base(tree) | region.bits, _ABOVE_REGION | region.mask)


class Parts(NamedTuple):
    """The parts of the address of an event or entry."""

    scope: Scope
    tree: int
    bits: int


def space_of(address: int) -> int:
    """The number of the space in an address, whatever its prefix is."""
    return address >> 102 & MAX_SPACE


def scope_bits(address: int) -> int:
    """Space and index version of an address as one number."""
    return address >> 100 & _SCOPE


def tree_of(address: int) -> int:
    """The number of the tree in an address."""
    return address >> WIDTH & MAX_TREE


def on_tree(match: Match, tree: int) -> Match:
    """A match for all trees, narrowed down to one tree."""
    return Match(match.address | tree << WIDTH, match.mask | TREE_MASK)


def on_all_trees(match: Match) -> Match:
    """A match for one tree, widened to all trees."""
    return Match(match.address & ~TREE_MASK, match.mask & ~TREE_MASK)


def match_prefix(prefix: int) -> Match:
    """Matches all addresses that start with a 16-bit prefix."""
    return Match(prefix << 112, ALL ^ (ALL >> 16))


def read(address: int, prefix: int = PREFIX) -> Parts:
    """Split an address into its parts; BadAddress if it has another prefix."""
    if address >> 112 != prefix:
        raise BadAddress(f"{IPv6Address(address)} does not start with {prefix:04x}")
    scope = Scope(address >> 102 & MAX_SPACE, address >> 100 & MAX_VERSION, prefix)
    return Parts(scope, address >> WIDTH & MAX_TREE, address & FULL)


def read_match(match: Match, prefix: int = PREFIX) -> tuple[Scope, int | None, Region]:
    """The scope, tree (None: all) and region that a match stands for."""
    if match.mask | TREE_MASK | FULL != ALL:
        raise BadAddress(f"{match} does not fix prefix, space and version")
    parts = read(match.address, prefix)
    tree = parts.tree if match.mask & TREE_MASK == TREE_MASK else None
    return parts.scope, tree, Region(parts.bits, match.mask & FULL)
