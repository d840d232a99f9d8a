"""What etcd holds: how full it is, what compacting it freed, what was restored."""

from typing import Literal

from msgspec import Struct


class StoreView(Struct, frozen=True):
    """How full etcd's database is, in bytes, and how much of that may be removed to make room.

    `in_use` is `size` without what was freed and will be used again. The quota limits `size`.
    `records` are the subscriptions and advertisements that there are, `active_subscriptions` those
    that the switches deliver to (also while they are being removed), as far as this API process
    knows: with several, it counts those of the others every now and then.
    """

    size: int
    in_use: int
    quota: int
    level: Literal["normal", "high", "refusing", "full"]
    finished_records: int
    finished_bytes: int
    idempotency_keys: int
    idempotency_bytes: int
    records: int = 0
    active_subscriptions: int = 0


class Compaction(Struct, frozen=True):
    """The size of etcd's database before and after it was compacted, in bytes.

    With `full`, it is still at its quota.
    """

    size_before: int
    in_use_before: int
    size: int
    in_use: int
    quota: int
    full: bool


class Restored(Struct, frozen=True):
    """How many spaces and records were restored, and how many records the switches refused."""

    spaces: int
    records: int
    failed: int = 0
