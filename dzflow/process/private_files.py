"""Files that only their owner may read, in folders that others may be able to write to."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from dzflow.errors import DzflowError

PRIVATE = 0o600


class NotPrivate(DzflowError):
    """Other users can read or change a file or folder that holds secrets."""


def private_opener(path: str, flags: int) -> int:
    """Open a file for its owner only, and no link in its place; for `open(…, opener=…)`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read; it is complete, or as it was before.

    A file or link that is at the path is replaced. OSError if that is impossible.
    """
    # A new file under a name that nobody can foresee: in a shared folder such as /tmp, another user
    # could have put a link at any other name.
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(draft).unlink()
        raise


def read_private(path: Path) -> str:
    """The text of a file that this program has made; NotPrivate if others could read or write it.

    OSError if it cannot be read.
    """
    try:
        handle = private_opener(str(path), os.O_RDONLY)
    except OSError as error:
        if path.is_symlink():
            raise NotPrivate(f"{path} is a link; remove it, and a new file is made") from error
        raise
    with os.fdopen(handle) as file:
        status = os.fstat(handle)
        if status.st_uid not in (os.geteuid(), 0):
            raise NotPrivate(f"{path} belongs to another user; remove it, and a new file is made")
        if status.st_mode & 0o077:
            raise NotPrivate(
                f"other users can read {path} (mode {stat.S_IMODE(status.st_mode):04o}), so it is"
                " no secret any more; remove it, and a new file is made"
            )
        return file.read()


def find_exposure(path: Path) -> str | None:
    """Which others can read or change a file with a secret; None if no others, or no file."""
    try:
        status = path.stat()
    except OSError:
        return None  # the part that needs the file reports it
    for bit, text in ((0o002, "everybody can change"), (0o020, "its group can change")):
        if status.st_mode & bit:
            return f"{text} {path}; `chmod 600` it"
    for bit, text in ((0o004, "everybody can read"), (0o040, "its group can read")):
        if status.st_mode & bit:
            return f"{text} {path}, which holds a secret; `chmod 600` it"
    return None
