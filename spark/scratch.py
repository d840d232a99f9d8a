"""A folder for the temporary files of a process; those of killed processes are removed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dzflow.errors import DzflowError

_PREFIX = "dzflow-spark."
_TRIES = 10


class NoScratch(DzflowError):
    """No folder for temporary files can be made."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, which is removed when the block ends.

    A process locks its folder as long as it lives. So a folder without a lock is one that a killed
    process has left: it is removed now. NoScratch if no folder can be made.
    """
    _remove_left()
    folder, lock = _new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # Java may be about to end, and still write
        os.close(lock)


def _new_folder() -> tuple[Path, int]:
    """A folder and the lock on it."""
    for _ in range(_TRIES):
        try:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        except OSError as error:
            raise NoScratch(f"there is no place for temporary files: {error}") from error
        lock = _lock(folder)
        if lock is None:
            continue  # another process has taken it for one that was left
        if folder.exists():
            return folder, lock
        os.close(lock)
    raise NoScratch(f"other processes remove folders in {tempfile.gettempdir()} at once")


def _remove_left() -> None:
    """Remove this user's folders that no living process has."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = _lock(folder)
        if lock is not None:
            try:
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """The lock on a folder of this user; None if another process has it, or it is gone."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
    except OSError:  # it is locked, or the file system knows no locks
        pass
    os.close(handle)
    return None
