"""The cases of the benchmark `balance`: systems, configurators, and what is varied.

The figures are those of thesis section 6.6: 6.7 and 6.8 a to d (against the number of
configurators), 6.8 e and f (against the number of partitions) and 6.9 (against the size of slices).
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, NamedTuple

from bench.load.generator import CallKind
from bench.report import Row
from bench.workload import Distribution
from sdn.tables.pipeline import PlanName

SystemName = Literal["SNA", "SNA-LB (thesis)", "SNA-LB", "SEA"]
Section = Literal["scaling", "scaling_default", "partitions", "slices"]

CONTENTS: tuple[Distribution, ...] = ("uniform", "zipf")
_EAGER = {
    # Decisions every second, so that a run of some ten seconds shows their effect.
    "mode": "apply",
    "period": 1.0,
    "window": 3.0,
    "rest": 5.0,
    "moves_per_minute": 120,
}
SYSTEMS: dict[SystemName, dict[str, Any]] = {
    "SNA": {"mode": "sna", "balancing": {"mode": "off"}},
    "SNA-LB (thesis)": {"mode": "sna", "balancing": {**_EAGER, "policy": "thesis"}},
    "SNA-LB": {"mode": "sna", "balancing": {**_EAGER, "policy": "predictive"}},
    "SEA": {"mode": "sea"},
}
"""Shared nothing, the same with the two policies for balancing, and shared everything."""


class ConfiguratorKind(NamedTuple):
    """How configurators work, and the load that they get."""

    name: str
    at_once: int  # partitions at a time; 0: all
    slice_limit: int
    switch_delay_ms: float
    rate: int  # requests per second
    calls: CallKind
    time: float = 1.0  # of the seconds of load: at a higher rate, shorter runs tell as much

    def settings(self) -> dict[str, Any]:
        """The settings that make configurators work like this."""
        return {
            "slices": {"at_once": self.at_once, "limit": self.slice_limit},
            "emulated": {"switch_delay_ms": self.switch_delay_ms},
        }


THESIS = ConfiguratorKind("thesis", 1, 1, 20.0, 95, "single")
"""Works on one request after the other. In larger slices it would work a queue off faster the
longer that is, and never be overloaded. Its switches are so slow that it waits for them most of the
time: otherwise the figures would show how many processors the machine has."""

DEFAULT = ConfiguratorKind("default", 0, 500, 5.0, 400, "batch", time=0.5)


class Case(NamedTuple):
    """One measurement of a service."""

    section: Section
    system: SystemName
    content: Distribution
    kind: ConfiguratorKind = THESIS
    configurators: int = 4
    partitions: int = 64
    ordering: str = "net"
    plan: PlanName = "legs"

    @property
    def is_burst(self) -> bool:
        """Whether all requests subscribe, and arrive at once where nothing is active, as in 6.9.

        With removals in between, or with short queues, slices would never get large. Where many
        subscriptions are active already, the entries of new ones are mostly there.
        """
        return self.section == "slices"

    @property
    def columns(self) -> Row:
        """The columns that identify the case."""
        return {
            "system": self.system,
            "content": self.content,
            "configurators": self.configurators,
            "partitions": self.partitions,
            "at_once": self.kind.at_once,
            "slice_limit": self.kind.slice_limit,
            "ordering": self.ordering,
            "plan": self.plan,
            "switch_delay_ms": self.kind.switch_delay_ms,
            "rate": None if self.is_burst else self.kind.rate,
        }

    def settings(self, topology: str) -> dict[str, Any]:
        """The settings of the service."""
        return {
            "topology": topology,
            "configurators": self.configurators,
            "partitions": self.partitions,
            "plan": self.plan,
            "ordering": self.ordering,
            **self.kind.settings(),
            **SYSTEMS[self.system],
        }

    def __str__(self) -> str:
        return (
            f"{self.section}: {self.system}, {self.content}, {self.configurators} configurators"
            f" ({self.kind.name}), {self.partitions} partitions, slices of {self.kind.slice_limit}"
        )


class Scale(NamedTuple):
    """The extent of the benchmark."""

    cases: tuple[Case, ...]
    active: int = 500  # subscriptions before the load begins
    settle: float = 12.0  # seconds of load that are not measured: the balancer acts
    seconds: float = 10.0  # of load that are measured
    burst: int = 1_000  # requests that arrive at once, where they do
    topology: str = "fat-tree:102"
    reference: int = 4  # configurators, for the ratios


def _full() -> Iterator[Case]:
    sections: tuple[tuple[Section, ConfiguratorKind], ...] = (
        ("scaling", THESIS),
        ("scaling_default", DEFAULT),
    )
    for section, kind in sections:
        for content, count, system in product(CONTENTS, (1, 2, 4, 8), SYSTEMS):
            if count > 1 or "LB" not in system:  # one configurator has nothing to balance
                yield Case(section, system, content, kind, count)
    for content, count in product(CONTENTS, (4, 16, 64, 256, 512)):
        for system in ("SNA", "SNA-LB", "SEA"):
            yield Case("partitions", system, content, partitions=count)  # type: ignore[arg-type]
    for limit, ordering in product((1, 5, 20, 100, 500), ("fifo", "ordered", "net")):
        kind = THESIS._replace(slice_limit=limit)
        yield Case("slices", "SNA", "uniform", kind, 1, 1, ordering, plan="lpm")


FULL = Scale(tuple(_full()))
QUICK = Scale(
    tuple(Case("scaling", system, "zipf") for system in ("SNA", "SNA-LB")),
    active=20,
    settle=4.0,
    seconds=3.0,
)
