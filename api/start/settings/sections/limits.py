"""Sections on limits: what the API refuses, and what is kept for how long."""

from pydantic import Field

from api.start.settings.sections.base import Section


class LimitSettings(Section):
    """Limits of the API: requests beyond them are refused."""

    rate: float = Field(default=0.0, ge=0, description="requests per second; 0: no limit")
    host_rate: float = Field(
        default=0.0, ge=0, description="requests per second of one host; 0: no limit"
    )
    window: int = Field(default=4_000, ge=1, description="requests in progress, per API process")
    host_window: int = Field(
        default=64, ge=1, description="of these, requests of one host: fewer is fairer"
    )
    queue: int = Field(default=20_000, ge=1, description="requests that wait for the window")
    host_queue: int = Field(default=5_000, ge=1, description="of these, requests of one host")
    calls: int = Field(default=2_000, ge=1, description="HTTP requests at once, per API process")
    streams: int = Field(
        default=4_000,
        ge=1,
        description="readers of /stream, per API process; see also `http.address_connections`",
    )
    host_streams: int = Field(
        default=200, ge=1, description="of these, readers with the token of one host"
    )
    body: int = Field(default=8 << 20, ge=1024, description="bytes of a request's body")
    work: float = Field(
        default=500.0,
        ge=0,
        description="ms of processor time per second for filters, per API process; 0: no limit",
    )
    host_work: float = Field(
        default=200.0, ge=0, description="of these, for filters of one host; 0: no limit"
    )
    filter: int = Field(default=64 << 10, ge=1024, description="bytes of a filter (as MessagePack)")
    record: int = Field(
        default=256 << 10,
        ge=4096,
        le=1 << 20,
        description="bytes of a subscription or advertisement as it is stored",
    )
    host_records: int = Field(
        default=500_000, ge=0, description="subscriptions, advertisements of a host; 0: no limit"
    )
    host_bytes: int = Field(
        default=256 << 20, ge=0, description="bytes that they have together; 0: no limit"
    )
    space_records: int = Field(
        default=2_000_000, ge=0, description="the same in a space; 0: no limit"
    )
    space_bytes: int = Field(
        default=1 << 30, ge=0, description="bytes that they have together; 0: no limit"
    )
    page: int = Field(
        default=4 << 20, ge=1024, description="bytes of a page of a list, if it has several items"
    )
    traces: int = Field(
        default=2 << 30, ge=1 << 20, description="bytes of traces in a folder; the oldest go first"
    )
    wait: float = Field(
        default=10.0, gt=0, description="seconds that a request waits for switches by default"
    )


class KeepSettings(Section):
    """What is kept for a while, and how much of it; see [what is kept](../how-to/storage.md)."""

    finished_s: float = Field(
        default=600.0, ge=60, description="seconds that removed and failed records are kept"
    )
    finished_count: int = Field(
        default=100_000, ge=0, description="the most of them, but all of the last 30 seconds"
    )
    finished_bytes: int = Field(default=128 << 20, ge=0, description="the most bytes of them")
    key_s: float = Field(
        default=86_400.0, ge=600, description="seconds that idempotency keys are honoured"
    )
    key_count: int = Field(
        default=500_000, ge=0, description="the most of them, but all of the last ten minutes"
    )
    key_bytes: int = Field(default=256 << 20, ge=0, description="the most bytes of them")
    answers: int = Field(
        default=10_000,
        ge=1,
        description="answers to keyed requests that leave no record, per API process",
    )
    series: int = Field(
        default=10_000, ge=1, description="metrics reported by applications, per API process"
    )
    history: int = Field(
        default=5_000,
        ge=1,
        le=1_000_000,
        description="events of workers and partitions that GET /history gives, per API process",
    )
