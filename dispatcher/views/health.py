"""The health of the control plane: its parts, and what cannot be used now."""

from typing import Literal

from msgspec import Struct

from dispatcher.views.store import StoreView


class Part(Struct, frozen=True):
    """One part of the control plane: usable or not, and why not."""

    name: str
    ok: bool
    reason: str | None = None


class Impairment(Struct, frozen=True):
    """A switch, partition, process or stored document that cannot be used now, and why."""

    kind: Literal["switch", "partition", "process", "document"]
    id: str
    reason: str


class Health(Struct, frozen=True):
    """Whether requests can be served now; `reasons` is empty if so.

    Requests that concern something `impaired` have to wait.
    """

    ready: bool
    reasons: list[str]
    impaired: list[Impairment]
    etcd: Part
    dispatchers: list[Part]
    configurators: list[Part]
    southbound: list[Part]
    switches_up: int
    switches: int
    partitions_ready: int
    partitions: int
    store: StoreView | None = None
