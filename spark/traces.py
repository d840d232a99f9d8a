"""The files of traces that a job reads, and those that it cannot use. Pure."""

from collections.abc import Mapping

from msgspec import Struct


class SkippedFile(Struct, frozen=True, order=True):
    """A file of traces that cannot be used."""

    name: str
    why: str


class TraceFile(Struct, frozen=True):
    """A file that can be used: its address, its rows, and the documents in its footer."""

    path: str
    rows: int
    footer: Mapping[str, str]


class Traces(Struct, frozen=True):
    """The files of a folder."""

    files: tuple[TraceFile, ...]
    skipped: tuple[SkippedFile, ...]

    @property
    def newest_footer(self) -> Mapping[str, str]:
        """The documents of the newest file; file names begin with the time."""
        return max(self.files, key=lambda file: file.path).footer if self.files else {}
