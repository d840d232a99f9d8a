"""Where files of traces go: a folder of this machine, or any storage that pyarrow can write to.

| storage | while a file is written | when it is complete | old files |
| --- | --- | --- | --- |
| a local folder | its name begins with a dot | it is renamed | the oldest are deleted |
| HDFS | its name begins with a dot | it is renamed | stay |
| an object store | it is not visible, or empty (Azure) | it is visible | stay |

Renaming is atomic in a folder and on HDFS. In an object store it is a copy and a deletion, and not
needed. The thread that writes calls everything here, and may be kept waiting.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pa_fs  # type: ignore[import-untyped]

from configurators.environment import Clock
from dispatcher.reports.trace_address import shown_address, without_secrets

_STALE_SECONDS = 3_600.0  # after which the process that wrote an unfinished file must be gone
_RENAMING = ("local", "hdfs")


class StorageUnavailable(OSError):
    """The storage of an address cannot be used at present."""


class TraceFile(Protocol):
    """A file that is being written."""

    @property
    def sink(self) -> Any:
        """What pyarrow writes to."""

    def size(self) -> int:
        """How many bytes were written."""

    def finish(self) -> None:
        """Make the complete file visible."""

    def discard(self) -> None:
        """Leave nothing of an incomplete file, if that is possible."""


class TraceStorage(Protocol):
    """Takes files of traces."""

    @property
    def place(self) -> str:
        """Where that is, without secrets."""

    def prepare(self) -> None:
        """Make ready, so that the log says soon if the storage cannot be used; OSError if so."""

    def begin(self, folder: str, name: str) -> TraceFile:
        """A new file in one of the folders; OSError if that is impossible."""

    def tidy(self) -> None:
        """Delete what is too old, or too much; OSError if that is impossible."""


class LocalStorage:
    """A folder of this machine, for its user only; all files together take a bounded space."""

    def __init__(self, folder: Path, most_bytes: int = 2 << 30, clock: Clock | None = None) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._clock = clock or Clock()

    @property
    def place(self) -> str:
        """The path of the folder."""
        return str(self._folder)

    def prepare(self) -> None:
        """Nothing is needed: the folder is made for the first file."""

    def begin(self, folder: str, name: str) -> TraceFile:
        """A new file with a dot before its name."""
        inner = self._folder / folder
        for each in (self._folder, inner):  # `parents` would open them to others
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _LocalFile(inner / f".{name}", inner / name)

    def tidy(self) -> None:
        """Delete unfinished files of dead processes, and the oldest files if all are too large.

        Several processes may write to the folder, and do this at the same time.
        """
        found = []
        for path in self._folder.glob("*/*.parquet"):
            try:
                about = path.stat()
            except FileNotFoundError:
                continue
            if not path.name.startswith("."):
                found.append((about.st_mtime, about.st_size, path))
            elif self._clock.wall() - about.st_mtime > _STALE_SECONDS:
                path.unlink(missing_ok=True)
        taken = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if taken <= self._most_bytes:
                break
            path.unlink(missing_ok=True)
            taken -= size


class _LocalFile:
    def __init__(self, draft: Path, final: Path) -> None:
        self.sink = draft
        self._final = final

    def size(self) -> int:
        return self.sink.stat().st_size

    def finish(self) -> None:
        self.sink.rename(self._final)

    def discard(self) -> None:
        self.sink.unlink(missing_ok=True)


class OtherStorage:
    """A folder on a file system of pyarrow's. Nothing is ever deleted or listed there.

    Deletion is left to the rules of the storage: several services may write to one place, to list
    it can be slow and costs money, and who may only write can do less harm.
    """

    def __init__(self, place: str, connect: Callable[[], tuple[pa_fs.FileSystem, str]]) -> None:
        """`connect` gives the file system and the folder on it; it is called until it succeeds."""
        self._place = place
        self._connect = connect
        self._connected: tuple[pa_fs.FileSystem, str] | None = None

    @property
    def place(self) -> str:
        """Its address."""
        return self._place

    def prepare(self) -> None:
        """Connect to the storage."""
        if self._connected is None:
            self._connected = self._connect()

    def begin(self, folder: str, name: str) -> TraceFile:
        """A new file."""
        self.prepare()
        assert self._connected is not None
        system, base = self._connected
        inner = f"{base.rstrip('/')}/{folder}" if base else folder
        final = f"{inner}/{name}"
        draft = final
        if _renames(system):
            system.create_dir(inner)
            draft = f"{inner}/.{name}"
        return _OtherFile(system, draft, final)

    def tidy(self) -> None:
        """Nothing is deleted."""


class _OtherFile:
    def __init__(self, system: pa_fs.FileSystem, draft: str, final: str) -> None:
        self._system = system
        self._draft = draft
        self._final = final
        self.sink = system.open_output_stream(draft, compression=None)

    def size(self) -> int:
        return int(self.sink.tell())

    def finish(self) -> None:
        self.sink.close()
        if self._draft != self._final:
            self._system.move(self._draft, self._final)

    def discard(self) -> None:
        """The stream cannot be given up: it is closed at the latest when nobody refers to it."""
        try:
            self.sink.close()
        finally:
            self._system.delete_file(self._draft)


def _renames(system: pa_fs.FileSystem) -> bool:
    """Whether a file is visible before it is complete, and can be renamed at once."""
    while isinstance(system, pa_fs.SubTreeFileSystem):
        system = system.base_fs
    return system.type_name in _RENAMING


def open_storage(where: str, most_bytes: int, clock: Clock) -> TraceStorage:
    """The storage at a path of this machine, or at an address; nothing is opened yet."""
    if "://" not in where:
        return LocalStorage(Path(where), most_bytes, clock)
    if where.lower().startswith("file://"):
        _, path = _connect(where)
        return LocalStorage(Path(path), most_bytes, clock)
    return OtherStorage(shown_address(where), lambda: _connect(where))


def _connect(address: str) -> tuple[pa_fs.FileSystem, str]:
    """The file system of an address, and the folder on it; StorageUnavailable if there is none."""
    try:
        system, folder = pa_fs.FileSystem.from_uri(address)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StorageUnavailable(without_secrets(str(error), address)) from None
    return system, str(folder)
