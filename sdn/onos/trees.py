"""Entries that admit events on all trees, as one rule for each tree.

Such an entry leaves the number of the tree open. The number lies before the bits of the region, so
the mask has a gap and is no prefix.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from dzflow.address import ALL, MAX_TREE, TREE_MASK, Match, on_all_trees, on_tree, tree_of
from dzflow.errors import BadInput
from dzflow.region import FULL, is_prefix
from sdn.onos.codec import UnsupportedEntry
from sdn.tables.flows import FlowEntry

EVERY_TREE = tuple(range(MAX_TREE + 1))


class TreeNotInUse(BadInput):
    """The entry is for a tree that is not in use; nothing was sent."""


class Trees(Struct, frozen=True):
    """The numbers of the trees in use, and the table that admits events."""

    table: int
    numbers: tuple[int, ...] = EVERY_TREE

    def __post_init__(self) -> None:
        if not self.numbers or not all(0 <= number <= MAX_TREE for number in self.numbers):
            raise BadInput(
                f"trees in use: {self.numbers}; give at least one, each within 0 to {MAX_TREE}"
            )

    def check(self, entry: FlowEntry) -> None:
        """Raise if an entry's tree is not in use, or if the entry cannot be written as prefixes."""
        self.expand(entry)
        match = entry.match
        if match is None or not _names_tree(match):
            return
        tree = tree_of(match.address)
        if entry.table == self.table and match.mask & FULL:
            raise UnsupportedEntry(
                f"{entry} admits events on tree {tree} only; leave the number of the tree open"
            )
        if tree not in self.numbers:
            raise TreeNotInUse(
                f"{entry} is for tree {tree}, but only {self.numbers} are in use; name"
                " the tree in set_network first"
            )

    def expand(self, entry: FlowEntry) -> tuple[FlowEntry, ...]:
        """The entries with prefixes only that are equivalent to an entry."""
        match = entry.match
        if match is None or is_prefix(match.mask, ALL):
            return (entry,)
        if (
            entry.table == self.table
            and not match.mask & TREE_MASK
            and is_prefix(match.mask | TREE_MASK, ALL)
        ):
            return tuple(replace(entry, match=on_tree(match, n)) for n in self.numbers)
        raise UnsupportedEntry(
            f"ONOS matches prefixes of addresses only, not {match}; use an index of kind zorder"
            " with the plan lpm, or a driver that speaks OpenFlow"
        )

    def whole(self, rule: FlowEntry) -> FlowEntry:
        """The entry that a rule is a part of; it may be the rule itself."""
        match = rule.match
        if rule.table != self.table or match is None or not _names_tree(match):
            return rule
        if not match.mask & FULL:
            return rule  # a space as a whole is a prefix, with the number of the tree left open
        return replace(rule, match=on_all_trees(match))

    def fold(self, rules: Iterable[FlowEntry]) -> Iterator[FlowEntry]:
        """The entries of rules; rules that do not make a whole entry stay as they are."""
        parts: dict[FlowEntry, dict[int, FlowEntry]] = {}
        for rule in rules:
            whole = self.whole(rule)
            if whole is rule:
                yield rule
            else:
                assert rule.match is not None
                parts.setdefault(whole, {})[tree_of(rule.match.address)] = rule
        for whole, found in parts.items():
            if all(number in found for number in self.numbers):
                yield whole
                yield from (part for n, part in found.items() if n not in self.numbers)
            else:
                yield from found.values()


def _names_tree(match: Match) -> bool:
    return match.mask & TREE_MASK == TREE_MASK
