"""The section on balancing: when partitions move from one configurator to another."""

from typing import Literal

from pydantic import Field, model_validator

from api.start.settings.sections.base import Section


class BalancingSettings(Section):
    """How partitions are balanced in mode `sna`; see [balancing](../concepts/balancing.md)."""

    mode: Literal["off", "propose", "apply"] = Field(
        default="propose", description="decide nothing, show what should move, or move it"
    )
    policy: Literal["predictive", "thesis"] = Field(
        default="predictive", description="by expected work, or by queue lengths as in the thesis"
    )
    period: float = Field(default=5.0, ge=1, le=600, description="seconds between decisions")
    window: float = Field(
        default=20.0, ge=2, le=240, description="seconds of load that a decision looks at"
    )
    threshold: float = Field(
        default=1.5, gt=1, description="thesis: overload is a queue so many times the average"
    )
    imbalance: float = Field(
        default=0.2, ge=0, description="predictive: tolerated work above the average, as a share"
    )
    floor: float = Field(
        default=0.05, ge=0, description="predictive: tolerated in any case, in processors"
    )
    horizon: float = Field(
        default=120.0, gt=0, description="predictive: seconds within which a move must pay"
    )
    move_ms: float = Field(
        default=100.0, ge=0, description="predictive: processor time that any move takes"
    )
    record_us: float = Field(
        default=60.0, ge=0, description="predictive: the same for each record of the partition"
    )
    entry_us: float = Field(
        default=5.0, ge=0, description="predictive: the same for each flow entry"
    )
    rest: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="predictive: seconds until a partition moves again; longer each time",
    )
    moves_per_minute: int = Field(
        default=10, ge=1, description="predictive: the most moves, except to drain a configurator"
    )
    hand_over: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="seconds in which the owner of a moving partition has to stop; else it stays",
    )
    min_configurators: int = Field(
        default=1, ge=1, le=256, description="the fewest configurators that are proposed"
    )
    max_configurators: int = Field(
        default=16, ge=1, le=256, description="the most configurators that are proposed"
    )
    busy_target: float = Field(
        default=0.5, gt=0, le=1, description="share of its time that a configurator should work"
    )
    busy_limit: float = Field(
        default=0.7, gt=0, le=1, description="share above which more configurators are proposed"
    )

    @model_validator(mode="after")
    def _fit(self) -> "BalancingSettings":
        if self.window < 2 * self.period:
            raise ValueError(
                f"window: {self.window:g} s are too short to see whether load rises; take at least"
                f" twice the period, {2 * self.period:g} s, or a shorter period"
            )
        if self.min_configurators > self.max_configurators:
            raise ValueError("min_configurators is above max_configurators; swap them")
        if self.busy_target >= self.busy_limit:
            raise ValueError(
                "busy_target must be below busy_limit; otherwise the number of configurators swings"
            )
        return self
