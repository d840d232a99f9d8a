"""The record of a run: requests, events, faults, and the state at the end of each round.

A record is a file of JSON lines, one entry per line; the checker needs nothing else. All times are
seconds since 1970, taken by one process.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar

import msgspec
from msgspec import Struct

Action = Literal["begin", "update", "end", "read"]
Outcome = Literal["ok", "failed", "absent", "unknown"]
"""Done; refused, so that nothing of it may be left; there is no such record; or not known."""


class _Entry(Struct, frozen=True, tag_field="what", omit_defaults=True):
    """One line of a record."""


class Setup(_Entry, frozen=True, tag="setup"):
    """The seed and the options of the run."""

    seed: int
    options: dict[str, Any]


class Request(_Entry, frozen=True, tag="request"):
    """A control request. `label` identifies its record, even before the record has an id.

    A call that is repeated under its key is one request; each attempt of an update is a request.
    """

    action: Action
    label: str
    start: float
    end: float
    outcome: Outcome
    kind: str = "subscription"
    host: str = ""
    filter: Any = None  # as it was asked for, or read
    id: str = ""
    status: int = 0
    detail: str = ""
    tries: int = 1


class Steady(_Entry, frozen=True, tag="steady"):
    """A subscription or advertisement of the SDK that stays until the end."""

    name: str
    kind: str
    host: str
    filter: Any
    id: str
    since: float


class Published(_Entry, frozen=True, tag="published"):
    """An event; `wanted` names the steady subscriptions on other hosts whose filters it matches."""

    n: int
    at: float
    host: str
    wanted: tuple[str, ...]


class Received(_Entry, frozen=True, tag="received"):
    """An event that arrived at a steady subscription, or just at a host (then `name` is empty)."""

    n: int
    at: float
    host: str
    name: str = ""


class Fault(_Entry, frozen=True, tag="fault"):
    """A fault, from its injection until it was undone.

    `cuts` are the switches that may lose events meanwhile, `*` for all of them; with an `@`, only
    events of hosts at that switch. It lasts until the round is healed.
    """

    kind: str
    target: str
    begin: float
    end: float
    cuts: tuple[str, ...] = ()
    detail: str = ""


class Operation(_Entry, frozen=True, tag="operation"):
    """What an operator asked for, and the answer: a move, a map, a number of configurators."""

    action: str
    detail: str
    start: float
    end: float
    status: int  # 0: no answer
    answer: str = ""


class Stored(Struct, frozen=True, omit_defaults=True):
    """A record as etcd has it."""

    id: str
    kind: str
    host: str
    filter: Any
    state: str
    label: str = ""
    open: bool = False


class Paths(_Entry, frozen=True, tag="paths"):
    """The switches that events pass between two hosts, `from>to`, as of now.

    These are the switches on any tree and, with an `@`, the switches of the two hosts.
    """

    at: float
    switches: dict[str, tuple[str, ...]]


class Round(_Entry, frozen=True, tag="round"):
    """A round at its end: all faults are undone, the service is ready, no request is under way.

    `trouble` says why it has not come to rest in time. `tables` are the entries that each switch
    reports, `rebuilt` those that follow from the records.
    """

    number: int
    begin: float
    healed: float
    end: float
    records: tuple[Stored, ...] = ()
    tables: dict[str, tuple[str, ...]] = {}
    rebuilt: dict[str, tuple[str, ...]] = {}
    trouble: str = ""


Entry = Setup | Request | Operation | Steady | Published | Received | Fault | Paths | Round

T = TypeVar("T", bound=Entry)

_decoder = msgspec.json.Decoder(Entry)
_encode = msgspec.json.Encoder().encode


class Recorder:
    """Writes a record, and has it at hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._file = self.path.open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        self._file.close()

    def add(self, entry: Entry) -> None:
        """Add an entry; from any task, but from one thread only."""
        assert self._file is not None
        self.entries.append(entry)
        self._file.write(_encode(entry) + b"\n")
        if isinstance(entry, Round | Fault):
            self._file.flush()


def read(path: Path) -> list[Entry]:
    """Read a record from its file."""
    with path.open("rb") as file:
        return [_decoder.decode(line) for line in file]


def of(kind: type[T], entries: Iterable[Entry]) -> Iterator[T]:
    """The entries of one kind."""
    return (entry for entry in entries if isinstance(entry, kind))
