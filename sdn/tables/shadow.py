"""The shadow of a switch: the entries that it should hold, and the partition of each."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from dzflow.address import OWN_SPACE, space_of
from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, difference

BASE = "base"
"""The partition of the entries that a switch holds without any request."""

NOBODY = "nobody"
"""The partition of entries that no switch should hold."""

PartitionOf = Callable[[FlowEntry], str | tuple[str, ...] | None]
"""Returns the partition of an entry by its match; None if it is unknown. A tuple (the same object
for all of them) if the entry may only be removed when all these partitions are declared: it may
cover regions of any of them, because they were one partition once."""


class ShadowEntry(Struct, frozen=True, gc=False):
    """An entry that a switch should hold, and its partition."""

    partition: str
    entry: FlowEntry


Before = list[tuple[FlowKey, ShadowEntry | None]]
"""The shadow's entry (None: none) before each of some operations."""


_DELETE = Change.DELETE


class Shadow:
    """The entries that a switch should hold: base entries and those of all declared partitions."""

    def __init__(self, partition_of: PartitionOf) -> None:
        self._partition_of = partition_of
        self._held: dict[FlowKey, ShadowEntry] = {}
        self._sizes: dict[int, int] = {}  # how many entries each table has
        self.declared: set[str] = {NOBODY}

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._held)

    @property
    def fullest(self) -> int:
        """How many entries the table has that has the most."""
        return max(self._sizes.values(), default=0)

    def size(self, table: int) -> int:
        """How many entries a table has."""
        return self._sizes.get(table, 0)

    @property
    def entries(self) -> Mapping[FlowKey, FlowEntry]:
        """All entries by their key, as they are now."""
        return _Entries(self._held)

    def holding(self) -> set[str]:
        """The partitions that have entries."""
        return {one.partition for one in self._held.values()}

    def declare(self, partition: str, entries: Iterable[FlowEntry]) -> None:
        """From now on this partition should have exactly these entries.

        An entry that another partition has with the same key now belongs to this one. The other one
        counts as never declared then: what is known of it is not all any more.
        """
        held = self._held
        if partition in self.declared:
            for key in [key for key, one in held.items() if one.partition == partition]:
                del held[key]
                self._sizes[key.table] -= 1
        self.declared.add(partition)
        others: set[str] = set()
        for entry in entries:
            key = entry.key
            was = held.get(key)
            if was is None:
                self._sizes[key.table] = self._sizes.get(key.table, 0) + 1
            elif was.partition != partition:
                others.add(was.partition)
            held[key] = ShadowEntry(partition, entry)
        for other in others - {BASE}:
            self.withdraw(other)

    def withdraw(self, partition: str) -> None:
        """Expect nothing of a partition that no longer exists; it counts as never declared.

        What switches hold of it is left alone until all partitions are declared that have its
        regions now.
        """
        self.declare(partition, ())
        self.declared.discard(partition)

    def clear(self) -> None:
        """Forget all entries and declarations."""
        self._held.clear()
        self._sizes.clear()
        self.declared = {NOBODY}

    def note(self, partition: str, ops: Iterable[FlowOp]) -> Before:
        """Note operations that are in progress; returns the state before, for `restore`."""
        before: Before = []
        self.declared.add(partition)
        held, sizes, delete = self._held, self._sizes, _DELETE
        new, kind = tuple.__new__, FlowKey
        for op in ops:  # the innermost loop of the driver: each look-up and each call counts
            entry = op.entry
            # `entry.key`, written out
            key = new(kind, (entry.table, entry.priority, entry.in_port, entry.match))
            was = held.get(key)
            before.append((key, was))
            if op.change is not delete:
                held[key] = ShadowEntry(partition, entry)
                if was is None:
                    sizes[entry.table] = sizes.get(entry.table, 0) + 1
            elif was is not None:
                del held[key]
                sizes[entry.table] -= 1
        return before

    def restore(self, before: Before) -> None:
        """Undo operations that were not carried out."""
        held, sizes = self._held, self._sizes
        for key, was in reversed(before):
            if was is not None:
                if key not in held:
                    sizes[key.table] = sizes.get(key.table, 0) + 1
                held[key] = was
            elif held.pop(key, None) is not None:
                sizes[key.table] -= 1

    def repair(
        self, found: Iterable[FlowEntry], ignoring: Collection[FlowKey] = frozenset()
    ) -> list[FlowOp]:
        """The operations that repair a switch with these entries of ours.

        Entries of partitions that were not declared are left alone, and so are the keys to ignore,
        which were being changed while the switch was read.
        """
        complete: dict[int, bool] = {}
        have = [
            e
            for e in found
            if (key := e.key) not in ignoring and (key in self._held or self._is_known(e, complete))
        ]
        want = [one.entry for key, one in self._held.items() if key not in ignoring]
        return difference({"": have}, {"": want}).get("", [])

    def _is_known(self, entry: FlowEntry, complete: dict[int, bool]) -> bool:
        """Whether an entry belongs to partitions that were declared.

        `complete` remembers that of tuples of partitions.
        """
        if entry.match is None or space_of(entry.match.address) == OWN_SPACE:
            return BASE in self.declared
        owner = self._partition_of(entry)
        if not isinstance(owner, tuple):
            return owner in self.declared
        known = complete.get(id(owner))
        if known is None:
            known = complete[id(owner)] = self.declared.issuperset(owner)
        return known


class _Entries(Mapping[FlowKey, FlowEntry]):
    """The entries of a shadow, without a copy."""

    def __init__(self, held: Mapping[FlowKey, ShadowEntry]) -> None:
        self._held = held

    def __getitem__(self, key: FlowKey) -> FlowEntry:
        return self._held[key].entry

    def __iter__(self) -> Iterator[FlowKey]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
