"""What users see of the history: events, and pages of them."""

from typing import Literal

from msgspec import Struct

HistoryKind = Literal[
    "move",
    "take-over",
    "configurator",
    "southbound",
    "scale",
    "plan",
    "switch",
    "job",
    "leader",
]

HistoryAction = Literal[
    "began",
    "done",
    "failed",
    "aborted",
    "started",
    "restarted",
    "returned",
    "left",
    "died",
    "lost",
    "changed",
]


class HistoryEvent(Struct, frozen=True):
    """Something that happened, as this process has heard of it.

    | kind | actions |
    | --- | --- |
    | move | began, done, failed |
    | take-over | done: `target` owns what belonged to the dead `source` |
    | configurator, southbound | started, restarted, returned, left (as wanted), died |
    | scale | changed: another number of workers is wanted |
    | plan | began, done, aborted |
    | switch | lost, returned |
    | job | began, done, failed |
    | leader | changed: another monitor acts |

    `workers` are those that it concerns. `partition` is the one that it concerns, or `partitions`
    if there are several (64 at most, the text says how many). `seconds` is how long it took, or how
    long the worker or the switch was away. `cause` says who wanted a move, `reason` why. `process`
    is the API process that has heard of it.
    """

    at: float  # seconds since 1970; each event is later than the one before
    kind: HistoryKind
    action: HistoryAction
    text: str
    workers: tuple[str, ...] = ()
    partition: str = ""
    partitions: tuple[str, ...] = ()
    space: str = ""
    source: str = ""
    target: str = ""
    cause: str = ""
    reason: str = ""
    switches: tuple[str, ...] = ()
    seconds: float | None = None
    process: str = ""


class HistoryPage(Struct, frozen=True):
    """Events, the oldest first. `next` is there if more follows: `since` of the next page.

    `complete` says whether nothing after `since` was forgotten to make room. `process` is the API
    process that answers: each has a history of its own.
    """

    process: str
    items: list[HistoryEvent]
    next: float | None
    complete: bool
