"""Kinds of switches: their capacity and speed."""

from typing import Literal

from msgspec import Struct

from dzflow.errors import BadInput

MAX_TABLES = 254


class BadModel(BadInput):
    """A kind of switch that cannot be."""


class SwitchModel(Struct, frozen=True):
    """The capacity and speed of a switch; unlimited by default.

    `masks`: which masks of an IPv6 destination it accepts. A flow-mod takes `flow_mod_seconds`,
    and after a `burst` there are no more than `rate` of them per second. Barriers are answered
    `acknowledge_after` seconds late.
    """

    tables: int = MAX_TABLES
    table_capacity: int = 1_000_000
    max_groups: int = 65_536
    masks: Literal["any", "prefix", "none"] = "any"
    flow_mod_seconds: float = 0.0
    rate: float | None = None
    burst: int = 1
    acknowledge_after: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.tables <= MAX_TABLES:
            raise BadModel(f"{self.tables} tables: a switch has 1 to {MAX_TABLES}")
        if self.table_capacity < 0 or self.max_groups < 0:
            raise BadModel("the number of entries or groups is negative; 0 means none")
        if self.flow_mod_seconds < 0 or self.acknowledge_after < 0:
            raise BadModel("a time is negative; 0 means at once")
        if self.burst < 1 or (self.rate is not None and self.rate <= 0):
            raise BadModel("rate and burst must be above 0; without a rate there is no limit")

    @property
    def instant(self) -> bool:
        """Whether a flow-mod takes no time."""
        return not self.flow_mod_seconds and self.rate is None


SOFTWARE = SwitchModel()
HARDWARE = SwitchModel(table_capacity=4096, max_groups=1024, rate=45.0, acknowledge_after=0.005)
PRESETS = {"software": SOFTWARE, "hardware": HARDWARE}


class Pace:
    """When the flow-mods of a switch are done, one after another."""

    def __init__(self) -> None:
        self.free_at = 0.0
        # When the next flow-mod would come if all came exactly at the rate.
        self._paced_to = 0.0

    def flow_mod(self, model: SwitchModel, now: float) -> float:
        """When a flow-mod that comes now is done."""
        start = max(now, self.free_at)
        if model.rate is not None:
            interval = 1 / model.rate
            paced = max(self._paced_to, start)
            self._paced_to = paced + interval
            start = max(start, paced - (model.burst - 1) * interval)
        self.free_at = start + model.flow_mod_seconds
        return self.free_at

    def other(self, now: float) -> float:
        """When any other message that comes now is done: it waits for those before it."""
        return max(now, self.free_at)
