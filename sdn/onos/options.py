"""How the ONOS driver behaves."""

from msgspec import Struct

from dzflow.errors import BadInput
from sdn.onos.trees import EVERY_TREE


class OnosOptions(Struct, frozen=True):
    """How the driver behaves; all times are in seconds.

    ONOS reports a rule as added when it next reads the switch's statistics, every 5 s unless it is
    told otherwise; `confirm` must leave room for that. `trees` are the numbers of the trees in use:
    an entry that lets events in costs one rule for each of them.
    """

    app: str = "org.dzflow"
    trees: tuple[int, ...] = EVERY_TREE
    confirm: float = 30.0  # for ONOS to report that a switch has done something
    poll: float = 0.05  # before it is asked for the first time again, then twice that, and so on
    slowest_poll: float = 1.0
    chunk: int = 500  # rules in one request
    queue: int = 1_000  # batches in progress or waiting, for each switch
    watch_every: float = 5.0  # whether switches are connected
    audit_every: float = 300.0

    def __post_init__(self) -> None:
        times = (self.confirm, self.poll, self.slowest_poll, self.watch_every, self.audit_every)
        if min(times) <= 0 or min(self.chunk, self.queue) < 1:
            raise BadInput("times, chunk and queue must be above 0")
