"""The steps of an operation: each step hands the operation on to the next one through this."""

from collections.abc import Callable
from typing import Protocol

from configurators.store.etcd.client import Stored
from configurators.store.model import Record
from dispatcher.requests.operation import Ending, Operation
from dzflow.errors import DzflowError


class Steps(Protocol):
    """What can happen to an operation, in the order in which it usually does."""

    def write(self, operation: Operation) -> None:
        """It is its turn: plan it, and write it to its record."""

    def deliver(self, operation: Operation) -> None:
        """It is written: have partitions carry it out."""

    def settle(self, operation: Operation) -> None:
        """All partitions have done their part: write the result."""

    def end(self, operation: Operation, record: Record, ending: Ending) -> None:
        """The result is written, or it was superseded; `record` is how the record is now."""

    # Detours

    def refuse(self, operation: Operation, error: DzflowError) -> None:
        """It cannot be written."""

    def hand_over(self, operation: Operation, record: Record | None) -> None:
        """Another operation on the record goes on instead; answer the caller when that one ends.

        Without a record the caller gets no answer.
        """

    def resend(self, operation: Operation) -> None:
        """Tell partitions again what they have not done yet."""

    def restart(self, operation: Operation) -> None:
        """Write it again, under a higher number and routed as of now."""

    def record_changed(
        self, operation: Operation, found: Stored | None, then: Callable[[Operation], None]
    ) -> None:
        """The record is not as the operation knew it: end the operation, or go on with `then`."""
