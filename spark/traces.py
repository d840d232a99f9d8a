"""The files of traces that a job reads, and those that it cannot use. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from dzflow.errors import BadInput


class NoTraces(BadInput):
    """A path without traces."""


class SkippedFile(Struct, frozen=True, order=True):
    """A file of traces that cannot be used."""

    name: str
    why: str


class TraceFile(Struct, frozen=True):
    """A file that can be used: its address and its number of rows."""

    path: str
    rows: int
    has_spaces: bool = False  # whether its footer describes the spaces


class Traces(Struct, frozen=True):
    """The files of a folder, and the entries in the footer of the newest one that has spaces."""

    files: tuple[TraceFile, ...]
    skipped: tuple[SkippedFile, ...]
    footer: Mapping[str, str]


class Source(Struct, frozen=True):
    """What a result was made from."""

    path: str
    made_us: int
    begin_us: int  # the first request in the traces, and the last end of one
    end_us: int
    files: int
    rows: int  # partials
    requests: int
    skipped: tuple[SkippedFile, ...] = ()
    backwards: int = 0  # rows that end before they begin: a clock was set back
    notices: tuple[str, ...] = ()  # what the result lacks, and why


def short_name(path: str) -> str:
    """The name of a file, without its folder."""
    return path.rsplit("/", 1)[-1]
