"""The section on the Spark job that the service runs by itself."""

from typing import Literal

from pydantic import Field, model_validator

from api.start.settings.sections.base import Section

_SHORTEST = 60.0  # seconds; Spark itself takes some to start


class JobSettings(Section):
    """The scheduled Spark job; see [jobs](../how-to/traces.md#schedule-the-job)."""

    every: float = Field(default=0.0, ge=0, description="seconds between two runs; 0: never")
    kind: Literal["rebalance", "shapes"] = Field(
        default="rebalance", description="plan partitions, or learn shapes"
    )
    mode: Literal["propose", "apply"] = Field(
        default="propose", description="show what the job proposes, or carry it out"
    )
    time_limit: float | None = Field(
        default=None,
        gt=0,
        description="seconds after which a run is ended; by default `every`, at most 1800",
    )
    window: float = Field(
        default=86_400.0, gt=0, description="seconds of traces that a run looks at"
    )
    master: str = Field(default="local[*]", min_length=1, description="the Spark master")

    @model_validator(mode="after")
    def _fit(self) -> "JobSettings":
        if 0 < self.every < _SHORTEST:
            raise ValueError(f"every: take at least {_SHORTEST:g} seconds, or 0 for never")
        if self.time_limit is not None and 0 < self.every < self.time_limit:
            raise ValueError(
                f"time_limit: a run must end before the next one; take at most {self.every:g} s"
            )
        return self
