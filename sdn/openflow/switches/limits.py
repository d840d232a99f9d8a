"""How much one switch is given at a time: the settings, and what its topology says."""

from collections.abc import Sequence

from msgspec import Struct

from sdn.network.switch_limits import SwitchLimits
from sdn.openflow.options import DriverOptions
from sdn.tables.flows import Change, FlowOp
from sdn.tables.shadow import Shadow


class Limits(Struct, frozen=True):
    """How much the driver gives one switch at a time."""

    window: int = 2_000  # operations in progress
    queue: int = 1_000  # batches waiting
    rate: float | None = None  # operations per second; None: no limit
    timeout: float = 10.0  # seconds for an answer
    echo_every: float = 15.0  # seconds
    capacity: int | None = None  # entries of each table; None: as many as the switch takes


def limits_of(options: DriverOptions, own: SwitchLimits) -> Limits:
    """The limits of one switch."""
    return Limits(
        window=options.window if own.window is None else own.window,
        queue=options.queue,
        rate=options.rate if own.rate is None else own.rate or None,
        timeout=options.timeout if own.timeout is None else own.timeout,
        echo_every=options.echo_every if own.echo_every is None else own.echo_every,
        capacity=own.capacity,
    )


def beyond_capacity(shadow: Shadow, ops: Sequence[FlowOp], capacity: int) -> str | None:
    """Why operations do not fit into the tables that may have `capacity` entries; None if they do.

    A batch that only makes room always fits.
    """
    known = shadow.entries
    more: dict[int, int] = {}  # entries by table
    seen: set[object] = set()
    for op in ops:
        key = op.entry.key
        there = (key in known) != (key in seen)
        if there is (op.change is Change.DELETE):
            seen ^= {key}
            more[key.table] = more.get(key.table, 0) + (-1 if there else 1)
    for table, count in more.items():
        if count > 0 and shadow.size(table) + count > capacity:
            return f"table {table} may have {capacity} entries (capacity), and has no room for more"
    return None
