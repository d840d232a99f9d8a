"""What a report says: the JSON form, which the page shows.

Times are microseconds since 1970, durations milliseconds unless the name says otherwise. Lists are
bounded by the size of the network, not by the length of the traces.
"""

from msgspec import Struct

from spark.traces import Source


class KindRow(Struct, frozen=True):
    """The requests of one kind."""

    kind: str
    requests: int
    failed: int
    per_s: float  # over the whole time
    peak_per_s: float  # in the bucket of the timeline with most of them
    partials: float  # per request
    adds: float  # flow operations per request
    modifies: float
    deletes: float


class HostRow(Struct, frozen=True):
    """The requests of one host; `host` is empty for all others together."""

    host: str
    requests: int
    share: float
    failed: int
    work_ms: float  # time of deciding


class Bucket(Struct, frozen=True):
    """A part of the timeline, by the time at which requests arrived."""

    begin_us: int
    requests: dict[str, int]  # by kind
    failed: int
    p50_ms: float
    p99_ms: float


class Timeline(Struct, frozen=True):
    """Requests and latency over time, in buckets of equal length, without empty ones."""

    bucket_s: float
    buckets: tuple[Bucket, ...]


class StageRow(Struct, frozen=True):
    """How long one stage took."""

    stage: str  # total, queued, decided, pushed
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class LoadRow(Struct, frozen=True):
    """The work of one partition or configurator.

    `work_ms` is the time of deciding: a slice's time is shared among its partials.
    Pushing is waiting for switches, and no work.
    """

    name: str
    space: str  # empty for a configurator
    partials: int
    work_ms: float
    share: float  # of the work of all
    queued_p50_ms: float
    queued_p99_ms: float
    decided_p50_ms: float
    decided_p99_ms: float
    pushed_p50_ms: float
    pushed_p99_ms: float
    operations: int


class Bin(Struct, frozen=True):
    """A bar of a histogram: how many values are at most this, and above that of the bar before."""

    upto: float
    count: int


class Histogram(Struct, frozen=True):
    """How values are distributed."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    bins: tuple[Bin, ...]


class Churn(Struct, frozen=True):
    """How subscriptions or advertisements of a space come and go."""

    space: str
    kind: str  # subscription or advertisement
    begun: int
    updated: int
    ended: int
    lifetime_s: Histogram | None  # of those that began and ended within the traces


class HotRegion(Struct, frozen=True):
    """A part of a space that has much of its work."""

    space: str
    text: str  # in words: ranges of attributes
    regions: int  # of partials, each counted as often as it was told
    work_ms: float
    share: float  # of the work on the space's subscriptions that begin or change


class AttributeHeat(Struct, frozen=True):
    """Where the work of a space lies on one attribute.

    `shares` has the share of the work in each equal part of the attribute's range, from the lowest
    on; `open` is the share of regions that leave the attribute open.
    """

    space: str
    attribute: str
    labels: tuple[str, ...]  # of each part, in words
    shares: tuple[float, ...]
    open: float


class ExpensiveRequest(Struct, frozen=True):
    """One of the requests that took most work."""

    id: str
    kind: str
    space: str
    host: str
    received_us: int
    total_ms: float | None  # None if a clock was set back
    work_ms: float
    partials: int
    regions: int
    operations: int
    filter: str


class Skew(Struct, frozen=True):
    """How unevenly work is spread; over hosts, requests."""

    over: str  # partitions, configurators or hosts
    count: int
    max_over_mean: float
    top_share: float  # of the busiest tenth, at least of one


class Report(Struct, frozen=True):
    """Everything that a report says."""

    source: Source
    kinds: tuple[KindRow, ...] = ()
    timeline: Timeline = Timeline(1.0, ())
    hosts: tuple[HostRow, ...] = ()
    latency: tuple[StageRow, ...] = ()
    partitions: tuple[LoadRow, ...] = ()
    configurators: tuple[LoadRow, ...] = ()
    slices: Histogram | None = None  # partials per slice
    operations: Histogram | None = None  # flow operations per request
    churn: tuple[Churn, ...] = ()
    hot: tuple[HotRegion, ...] = ()
    heat: tuple[AttributeHeat, ...] = ()
    expensive: tuple[ExpensiveRequest, ...] = ()
    skew: tuple[Skew, ...] = ()
