"""How tasks reach the configurators: pushed to the owner, or offered to all of them."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from configurators.streams.messages import Done
from dispatcher.requests.operation import Operation


class Delivery(Protocol):
    """Delivers tasks; chosen once per dispatcher by its mode.

    What a delivery remembers is a cache of the operations in flight.
    """

    def send(self, operation: Operation) -> None:
        """Deliver the tasks that partitions have not done yet."""

    def answered(self, dones: Sequence[Done]) -> None:
        """Configurators have answered tasks, in one way or the other."""

    def sent_back(self, dones: Sequence[Done]) -> None:
        """Tasks came back undone, because a configurator does not own their partitions (now)."""

    def owner_changed(self, partition: str, epoch: int) -> Iterable[Operation]:
        """A partition has a new owner; the operations that this owner has to carry out again."""

    def partition_gone(self, partition: str) -> None:
        """A partition no longer exists."""

    def outdated(self, operation: Operation) -> Sequence[str]:
        """Partitions whose present owner has not done what a former owner did."""
