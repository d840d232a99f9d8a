"""The operations that are written and not ended yet, by record and by partition."""

from collections.abc import Iterator

from dispatcher.requests.operation import Operation


class InFlight:
    """All operations of this dispatcher that partitions carry out, one per record."""

    def __init__(self) -> None:
        self._by_record: dict[str, Operation] = {}
        self._by_partition: dict[str, dict[Operation, None]] = {}

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_record.values())

    def __len__(self) -> int:
        return len(self._by_record)

    def get(self, record: str) -> Operation | None:
        """The operation on a record, if there is one."""
        return self._by_record.get(record)

    def partitions(self) -> list[str]:
        """All partitions that have a part in an operation."""
        return list(self._by_partition)

    def in_partition(self, partition: str) -> list[Operation]:
        """The operations that a partition has a part in, in the order in which they came."""
        return list(self._by_partition.get(partition, ()))

    def add(self, operation: Operation) -> None:
        """Keep an operation, by its record."""
        self._by_record[operation.record.id] = operation

    def add_partition(self, operation: Operation, partition: str) -> None:
        """Note that a partition has a part in an operation."""
        self._by_partition.setdefault(partition, {})[operation] = None

    def remove(self, operation: Operation) -> None:
        """Forget an operation that is over; it need not be known."""
        if self._by_record.get(operation.record.id) is operation:
            del self._by_record[operation.record.id]
        for name in operation.rollout.partitions:
            known = self._by_partition.get(name)
            if known is not None:
                known.pop(operation, None)
                if not known:
                    del self._by_partition[name]

    def remove_partition(self, partition: str) -> list[Operation]:
        """Forget a partition that no longer exists; the operations that it had a part in."""
        return list(self._by_partition.pop(partition, ()))
