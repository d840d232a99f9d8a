"""Batches and repairs on their way to one switch."""

from collections.abc import Callable, Iterable, Sequence

from sdn.fence import StaleEpoch
from sdn.outcomes import Outcome
from sdn.tables.flows import Change, FlowOp
from sdn.tables.shadow import Before, Shadow

Settle = Callable[[str, Outcome | StaleEpoch], None]
"""Called with the name of a switch and the outcome of a batch on it."""


class Job:
    """A batch for one switch that waits or is in progress.

    A repair goes before all batches and is not noted in the shadow, for it leads there.
    """

    __slots__ = (
        "before", "epoch", "ops", "partition", "refused", "repair", "send_until", "sent", "settle",
        "settled", "started", "table_full", "unanswered",
    )  # fmt: skip

    def __init__(
        self,
        partition: str,
        epoch: int,
        ops: Sequence[FlowOp],
        settle: Settle,
        repair: bool = False,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.ops = ops
        self.settle = settle
        self.repair = repair
        self.before: Before = []  # the shadow's entries before each operation
        self.started = False
        self.settled = False  # the caller has its outcome
        self.sent = 0  # operations
        self.send_until = len(ops)  # the rest waits until these are acknowledged
        self.unanswered = 0  # runs with operations of this job
        self.refused: dict[int, str] = {}  # reasons, by position
        self.table_full = False

    def undo(self, shadow: Shadow, positions: Iterable[int]) -> None:
        """Undo operations in the shadow, except where it has something newer."""
        if self.before:
            for position in sorted(positions, reverse=True):
                op, was = self.ops[position], self.before[position]
                put = None if op.change is Change.DELETE else op.entry
                if shadow.entries.get(was[0]) == put:
                    shadow.restore([was])


Part = tuple[Job, int, Sequence[FlowOp]]
"""Some operations of a job, and the position of the first of them."""
