"""What the service says of itself: health, readiness, settings, versions."""

from typing import Any, Literal

from msgspec import Struct

from dispatcher.views import Part, StoreView


class HealthOut(Struct, frozen=True):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class ImpairmentOut(Struct, frozen=True):
    """A switch, partition, process or stored document that cannot be used.

    `since` is seconds since the epoch.
    """

    kind: Literal["switch", "partition", "process", "document"]
    id: str
    reason: str
    since: float


class ImpairedCounts(Struct, frozen=True, omit_defaults=True):
    """How many switches, partitions, processes and stored documents cannot be used."""

    switches: int
    partitions: int
    processes: int
    total: int
    documents: int = 0


class ReadyOut(Struct, frozen=True, omit_defaults=True):
    """Whether requests can be served, and each part that this depends on.

    `degraded`: requests are served, but those that concern what is impaired have to wait.
    `not ready`: no request can be served, for the `reasons` given.

    If the service has tokens, only operators get `reasons`, `impaired`, `parts` and `store`, which
    says how full etcd's database is. `impaired` has at most 100 elements; `impaired_counts` counts
    all.
    """

    status: Literal["ready", "degraded", "not ready"]
    ready: bool
    impaired_counts: ImpairedCounts
    switches_up: int
    switches: int
    partitions_ready: int
    partitions: int
    reasons: list[str] | None = None
    impaired: list[ImpairmentOut] | None = None
    parts: list[Part] | None = None
    store: StoreView | None = None


class SettingOut(Struct, frozen=True):
    """A setting. `set` says whether it differs from its default.

    The value and the default of a `secret` are never given.
    """

    name: str
    variable: str
    meaning: str
    value: Any
    default: Any
    set: bool
    secret: bool = False


class SettingsGroup(Struct, frozen=True):
    """Settings that belong together; the first group has no name."""

    name: str
    meaning: str
    items: list[SettingOut]


class SettingsOut(Struct, frozen=True):
    """What the service was started with, in the order of docs/reference/configuration.md."""

    groups: list[SettingsGroup]


class AboutOut(Struct, frozen=True):
    """Versions, and who the caller is.

    `etcd` has the versions of all members that answer, `packages` those of libraries. `role` is
    that of the caller's token, `host` the one that it acts for. Without tokens, everybody is an
    operator. `lab` says whether the data plane is the Open vSwitch lab.
    """

    dzflow: str
    python: str
    system: str
    etcd: list[str]
    packages: dict[str, str]
    role: Literal["operator", "host"]
    host: str | None = None
    lab: bool = False
