"""The entries of one switch, indexed by match: a packet finds its entry without a scan."""

from bisect import insort
from typing import Generic, TypeVar

from sdn.tables.flows import FlowKey

E = TypeVar("E")

# By port (None: any), then by mask (None: any packet, also of other protocols), then by address.
_Cells = dict[int | None, dict[int | None, dict[int, E]]]


class FlowTable(Generic[E]):
    """All tables of a switch: entries of any kind, by key."""

    def __init__(self) -> None:
        self.entries: dict[FlowKey, E] = {}
        self._tables: dict[int, _Table[E]] = {}

    @property
    def lowest(self) -> int | None:
        """The lowest table that has, or has had, an entry."""
        return min(self._tables, default=None)

    def size(self, table: int) -> int:
        """How many entries a table has."""
        found = self._tables.get(table)
        return found.size if found else 0

    def put(self, key: FlowKey, entry: E) -> None:
        """Add an entry, or replace the one that has this key."""
        table, priority, in_port, match = key
        tables = self._tables
        found = tables.get(table)
        if found is None:
            found = tables[table] = _Table()
        if match is None:
            mask, address = None, 0
        else:
            mask, address = match.mask, match.address
        try:
            cells = found.cells[priority][in_port][mask]
        except KeyError:
            cells = found.make(priority, in_port, mask)
        if address not in cells:
            found.size += 1
        cells[address] = entry
        self.entries[key] = entry

    def remove(self, key: FlowKey) -> E:
        """Take an entry out that is there."""
        entry = self.entries.pop(key)
        table, priority, in_port, match = key
        mask = match.mask if match else None
        found = self._tables[table]
        cells = found.cells[priority][in_port][mask]
        del cells[match.address if match else 0]
        found.size -= 1
        if not cells:
            found.prune(priority, in_port, mask)
        return entry

    def clear(self) -> None:
        """Take all entries out."""
        self.entries.clear()
        self._tables.clear()

    def matching(self, table: int, address: int | None, in_port: int) -> list[E]:
        """The entries of the highest priority that match a packet.

        `address` is its IPv6 destination, None if it is no IPv6 packet. More than one entry means
        that the switch is free to choose.
        """
        found: list[E] = []
        tables = self._tables.get(table)
        if tables is None:
            return found
        for negated in tables.order:
            ports = tables.cells[-negated]
            for port in (None, in_port):
                for mask, cells in ports.get(port, {}).items():
                    if mask is None:
                        found.append(cells[0])
                    elif address is not None:
                        entry = cells.get(address & mask)
                        if entry is not None:
                            found.append(entry)
            if found:
                break
        return found


class _Table(Generic[E]):
    """One table; `order` holds its priorities negated, so that the highest comes first."""

    __slots__ = ("cells", "order", "size")

    def __init__(self) -> None:
        self.cells: dict[int, _Cells[E]] = {}
        self.order: list[int] = []
        self.size = 0

    def make(self, priority: int, in_port: int | None, mask: int | None) -> dict[int, E]:
        if priority not in self.cells:
            self.cells[priority] = {}
            insort(self.order, -priority)
        return self.cells[priority].setdefault(in_port, {}).setdefault(mask, {})

    def prune(self, priority: int, in_port: int | None, mask: int | None) -> None:
        ports = self.cells[priority]
        del ports[in_port][mask]
        if not ports[in_port]:
            del ports[in_port]
        if not ports:
            del self.cells[priority]
            self.order.remove(-priority)
