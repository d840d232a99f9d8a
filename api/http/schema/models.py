"""The bodies of requests and answers, beside the dispatcher's views; also for the document."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from configurators.state.learned_hosts import HostMode
from configurators.state.wanted import MAX_WORKERS
from configurators.store.model import Authentication
from dispatcher.calls import MAX_LABEL, MAX_TTL, MIN_TTL
from dispatcher.views import (
    ConfiguratorView,
    FlowView,
    HostView,
    PartitionView,
    ProposalView,
    RecordView,
    SouthboundView,
    SwitchView,
)
from dzflow.address import MAX_VERSION
from monitor.balancing.balancer import BalancerStatus, Decision
from monitor.jobs.state import JobKind, JobMode, JobState
from monitor.views import MapView, MoveView
from sdn.network.switch_limits import SwitchLimits

ID_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
SPACE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"

HostId = Annotated[str, Meta(pattern=ID_PATTERN, description="A host's id.", examples=["h1"])]
PartitionId = Annotated[
    str, Meta(min_length=1, max_length=1_024, description="As `GET /partitions` lists it.")
]
LinkId = Annotated[
    str,
    Meta(
        max_length=150,
        pattern=r"^[A-Za-z0-9_.-]{1,64}:[0-9]{1,5}-[A-Za-z0-9_.-]{1,64}:[0-9]{1,5}$",
        description="A link, by its ends: SWITCH:PORT-SWITCH:PORT.",
        examples=["s1:1-s2:1"],
    ),
]
SwitchId = Annotated[str, Meta(pattern=ID_PATTERN, description="A switch's id.", examples=["s1"])]
SpaceName = Annotated[
    str, Meta(pattern=SPACE_PATTERN, description="A space's name.", examples=["stocks"])
]
RecordId = Annotated[
    str,
    Meta(max_length=32, description="The id of a subscription or advertisement."),
]
FilterIn = Annotated[
    str | dict[str, Any] | list[dict[str, Any]],
    Meta(
        description=(
            'An object such as `{"price": {"gte": 420}}` (operators eq, ne, lt, lte, gt, gte, '
            "in, between, prefix), a list of such objects (any of them), or an expression such as "
            '`price >= 420 and symbol == "ACME"`. `{}` means everything.'
        ),
        examples=[{"price": {"gte": 420}}],
    ),
]
Wait = Annotated[
    bool | Annotated[float, Meta(ge=0, le=60)],
    Meta(
        description=(
            "Seconds to wait for the switches; true waits for the default time, "
            "false does not wait."
        )
    ),
]
Ttl = Annotated[
    float, Meta(ge=MIN_TTL, le=MAX_TTL, description="Seconds until it ends unless it is renewed.")
]
Label = Annotated[str, Meta(max_length=MAX_LABEL, description="A note of the caller.")]


class In(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request; unknown members are refused."""


class Begin(In, frozen=True):
    """A subscription or advertisement to make."""

    host: HostId
    space: SpaceName
    filter: FilterIn
    wait: Wait = True
    label: Label | None = None
    ttl: Ttl | None = None


class End(In, frozen=True):
    """A subscription or advertisement to remove."""

    id: RecordId
    wait: Wait = True


class Update(In, frozen=True):
    """The filter that replaces the present one."""

    filter: FilterIn
    wait: Wait = True


class AttributeIn(In, frozen=True):
    """One attribute of a space; which members it has depends on its type."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    type: Literal["int", "float", "enum", "string", "bool", "time"]
    min: int | float | str | None = None
    max: int | float | str | None = None
    values: list[str] | None = None
    scale: Literal["linear", "log"] | None = None
    bits: Annotated[int, Meta(ge=1, le=96)] | None = None


class IndexIn(In, frozen=True):
    """How a space is indexed."""

    kind: Literal["fields", "zorder"] | None = None
    budget: Annotated[int, Meta(ge=1, le=1_024)] | None = None
    shapes: Annotated[int, Meta(ge=1, le=4_096)] | None = None


class SchemaIn(In, frozen=True, omit_defaults=True):
    """The schema of a space."""

    attributes: Annotated[list[AttributeIn], Meta(min_length=1, max_length=96)]
    index: IndexIn | None = None
    authentication: (
        Annotated[
            Authentication,
            Meta(description="Whether events carry tags; a space keeps what it has by default."),
        ]
        | None
    ) = None


class ShapesIn(In, frozen=True):
    """A dictionary of shapes for a version of a space's index."""

    shapes: Annotated[
        list[Annotated[tuple[Annotated[int, Meta(ge=0, le=96)], ...], Meta(max_length=96)]],
        Meta(
            min_length=1,
            max_length=4_096,
            description="How many leading bits each shape fixes on each axis.",
        ),
    ]
    version: Annotated[int, Meta(ge=0, le=MAX_VERSION)]


class NewKeyIn(In, frozen=True):
    """A new key for a space."""

    grace: Annotated[
        float, Meta(ge=0, le=86_400, description="Seconds for which the former key stays valid.")
    ] = 120.0


class HostIn(In, frozen=True):
    """The switch and port that a host is connected to."""

    switch: SwitchId
    port: Annotated[int, Meta(ge=1, le=0xFEFF)]
    mac: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")] | None = None
    ipv6: Annotated[str, Meta(max_length=45)] | None = None


class SwitchIn(SwitchLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A switch, and how it is treated where that differs from the settings for all switches."""

    dpid: (
        Annotated[
            int, Meta(ge=1, description="Its datapath id, below 2^64; needed if the switch is new.")
        ]
        | None
    ) = None
    label: Annotated[str, Meta(max_length=MAX_LABEL, description="What people call it.")] = ""


class LinkIn(In, frozen=True):
    """A link between two switches."""

    lldp: Annotated[
        bool,
        Meta(
            description=(
                "Whether it carries LLDP, so that discovery finds it. If not, it counts as up while"
                " its ports are up."
            )
        ),
    ] = False


class AcceptIn(In, frozen=True):
    """The id that a host is to have (default: its own), and where it was when that was decided."""

    id: HostId | None = None
    switch: SwitchId | None = None
    port: Annotated[int, Meta(ge=1, le=0xFEFF)] | None = None


class MigrateIn(In, frozen=True):
    """The configurator that a partition is to move to."""

    to: Annotated[str, Meta(min_length=1, max_length=128)]
    wait: Wait = True


class CountIn(In, frozen=True):
    """How many workers there should be."""

    count: Annotated[int, Meta(ge=1, le=MAX_WORKERS)]


class ExplainIn(In, frozen=True):
    """A filter or an event to explain, and the host that would subscribe or publish."""

    space: SpaceName
    filter: FilterIn | None = None
    event: (
        Annotated[
            dict[str, Any],
            Meta(
                description="The value of every attribute of an event that `host` would publish.",
                examples=[{"price": 420.5, "volume": 100, "symbol": "ACME"}],
            ),
        ]
        | None
    ) = None
    host: HostId | None = None


class PublishIn(In, frozen=True):
    """An event, and the host that publishes it."""

    host: HostId
    space: SpaceName
    event: Annotated[
        dict[str, Any],
        Meta(
            description="The value of every attribute.",
            examples=[{"price": 420.5, "volume": 100, "symbol": "ACME"}],
        ),
    ]


class PublishedOut(Struct, frozen=True):
    """An event that was sent: its id (a 64-bit number, as text), address and tree."""

    id: str
    address: str
    tree: int


class SampledEvent(In, frozen=True):
    """An event that a publisher sent, as a sample."""

    space: SpaceName
    time_us: Annotated[int, Meta(ge=0, le=2**53)]
    values: dict[str, Any]
    weight: Annotated[
        float, Meta(ge=1, le=2**53, description="How many published events it stands for.")
    ] = 1.0


class ReportIn(In, frozen=True):
    """The counters and sampled events of an application since its last report."""

    host: HostId
    counters: Annotated[
        dict[
            Annotated[str, Meta(pattern=SPACE_PATTERN)],
            Annotated[
                dict[
                    Annotated[str, Meta(pattern=r"^[a-z_]{1,32}$")],
                    Annotated[int, Meta(ge=0, le=2**53)],
                ],
                Meta(max_length=32),
            ],
        ],
        Meta(max_length=1_000, description="Counts by space and name."),
    ] = {}
    events: Annotated[list[SampledEvent], Meta(max_length=1_000)] = []


# Answers, beside the dispatcher's views (`dispatcher/views/`)


class ProblemOut(Struct, frozen=True, omit_defaults=True):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list["FieldProblem"] | None = None
    id: str | None = None
    ids: list[str] | None = None
    request_id: str | None = None
    retry_after: float | None = None
    position: (
        Annotated[int, Meta(description="Where in the text of the filter, counted from 0.")] | None
    ) = None


class FieldProblem(Struct, frozen=True):
    """What is wrong with one field."""

    field: str
    detail: str


class ElementOut(RecordView, frozen=True, kw_only=True):
    """A record in the answer to a batch, with the status that a single request would have had."""

    status: int


class SpaceOut(Struct, frozen=True):
    """A space: its schema, and what publishers need to address events in it."""

    name: str
    number: int
    version: int
    versions: list[int]
    prefix: int
    trees: list[int]
    partitions: int
    changing: bool
    attributes: list[dict[str, Any]]
    index: dict[str, Any]
    authentication: Authentication
    key: int


class SpacesOut(Struct, frozen=True):
    """All spaces."""

    items: list[SpaceOut]
    next: str | None = None


class HostsOut(Struct, frozen=True):
    """All hosts."""

    items: list[HostView]
    next: str | None = None


class ProposalsOut(Struct, frozen=True):
    """Hosts that were heard and are not in the network; `mode` is the setting `discovery.hosts`."""

    mode: HostMode
    items: list[ProposalView]


class SwitchesOut(Struct, frozen=True):
    """All switches."""

    items: list[SwitchView]
    next: str | None = None


class FlowsOut(Struct, frozen=True):
    """The entries of a switch."""

    switch: str
    source: Literal["cp", "dp"]
    items: list[FlowView]
    next: str | None = None


class PartitionsOut(Struct, frozen=True):
    """All partitions, the moves in progress, and the partition maps."""

    items: list[PartitionView]
    moves: list[MoveView]
    maps: list[MapView]
    next: str | None = None


class BalancingOut(Struct, frozen=True):
    """What the balancer of this API process does, and what its policy would propose now."""

    status: BalancerStatus
    dry_run: Decision


class JobsOut(Struct, frozen=True):
    """The scheduled Spark job: how often it runs (0: never), and what is known of its runs."""

    every: float
    kind: JobKind | None
    mode: JobMode | None
    state: JobState | None


class ConfiguratorsOut(Struct, frozen=True):
    """All configurators, and how many there should be."""

    items: list[ConfiguratorView]
    wanted: int
    next: str | None = None


class SouthboundOut(Struct, frozen=True):
    """All southbound processes, and how many there should be."""

    items: list[SouthboundView]
    wanted: int
    next: str | None = None


class ReportOut(Struct, frozen=True):
    """The number of sampled events of a report that were kept."""

    events: int


class ReportedSpace(Struct, frozen=True):
    """What applications have counted in a space."""

    space: str
    counters: dict[str, int]


class ReportedOut(Struct, frozen=True):
    """The sums of the counters that this API process was told by `POST /reports`, by space.

    They count from `since` (seconds since 1970) on, when the `process` started. If one `host` was
    asked for, `last` is when it has reported last; its sums may begin later than `since`, if the
    process has had to forget those of hosts that have not reported for long.
    """

    process: str
    since: float
    items: list[ReportedSpace]
    host: str | None = None
    last: float | None = None
