"""What callers hand to the dispatcher, and what they get back for each element of a call."""

from typing import Any

from msgspec import Struct

from dispatcher.errors import Problem
from dispatcher.views import RecordView

MAX_LABEL = 200  # characters
MIN_TTL, MAX_TTL = 1.0, 31_536_000.0  # seconds


class RecordSpec(Struct, frozen=True):
    """A subscription or advertisement that a caller wants."""

    host: str
    space: str
    filter: Any
    label: str | None = None
    ttl: float | None = None


class Answer(Struct, frozen=True):
    """The outcome of one element: a record or a problem (or both), and the HTTP status that fits.

    201: begun; 200: ended or updated; 202: stored, but not complete yet.
    """

    status: int
    record: RecordView | None = None
    problem: Problem | None = None


class Page(Struct, frozen=True):
    """Some records, and the id after which the next page begins, if there may be more."""

    items: list[RecordView]
    next: str | None
