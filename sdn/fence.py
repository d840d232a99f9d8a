"""The fence: lets a partition's current owner change switches, and refuses all earlier owners."""

from collections.abc import Callable, Mapping

from dzflow.errors import DzflowError


class StaleEpoch(DzflowError):
    """The caller no longer owns the partition; nothing was sent. `current` is the owner's epoch."""

    def __init__(self, text: str, current: int = 0) -> None:
        super().__init__(text)
        self.current = current


def always() -> bool:
    """The process may always change switches."""
    return True


class Fence:
    """The lowest epoch that may still change switches, for each partition.

    `permits` says whether this process may change switches at all. Ask it right before sending.
    """

    def __init__(
        self, epochs: Mapping[str, int] | None = None, permits: Callable[[], bool] = always
    ) -> None:
        self._epochs = dict(epochs or {})
        self.permits = permits

    def raise_to(self, partition: str, epoch: int) -> None:
        """Refuse lower epochs from now on; raises StaleEpoch if the fence is higher already."""
        self.check(partition, epoch)
        self._epochs[partition] = epoch

    def check(self, partition: str, epoch: int) -> None:
        """Raise StaleEpoch if the fence is above this epoch."""
        if self.stale(partition, epoch):
            current = self._epochs[partition]
            raise StaleEpoch(
                f"partition {partition}: epoch {epoch} is over, {current} owns it now; stop working"
                " on this partition and read its state again",
                current,
            )

    def stale(self, partition: str, epoch: int) -> bool:
        """Whether the fence is above this epoch."""
        return epoch < self._epochs.get(partition, 0)
