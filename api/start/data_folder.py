"""The data folder: locked by one service, with the secrets that are kept in it."""

import fcntl
import grp
import os
import pwd
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from dzflow.errors import DzflowError
from dzflow.process.private_files import NotPrivate, private_opener, read_private, write_private

_LOCK = "up.lock"


class FolderInUse(DzflowError):
    """Another service uses the data folder."""


class DataFolder:
    """The folder, locked for one service while it is entered; only its owner can read it.

    NotPrivate if another user owns the folder, or may have put something into it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_private()
            (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
            lock = open(self.path / _LOCK, "a+", opener=private_opener)
        except OSError as error:
            raise FolderInUse(f"{self.path} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise FolderInUse(
                f"{self.path} is used by another `dzflow up` (process {owner}); stop it, or choose"
                " another --data-dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._lock is not None
        self._lock.close()

    def secret(self, name: str) -> str:
        """A secret of this installation, made at the first use."""
        path = self.path / name
        if not path.exists():
            self.keep(name, secrets.token_hex(32))
        return read_private(path).strip()

    def keep(self, name: str, secret: str) -> Path:
        """Keep a secret in a file of this folder, and give its path."""
        path = self.path / name
        write_private(path, secret.encode())
        return path

    def _make_private(self) -> None:
        status = self.path.stat()
        if status.st_uid != os.geteuid():
            raise NotPrivate(
                f"{self.path} belongs to another user (number {status.st_uid}), who can read and"
                " change all that is in it; choose another --data-dir, such as a new folder below"
                " it, or start dzflow as that user"
            )
        mode = stat.S_IMODE(status.st_mode)
        if mode & stat.S_ISVTX or (_lets_others_write(status) and not self._is_ours()):
            raise NotPrivate(
                f"other users can put files into {self.path} (mode {mode:04o}); choose a folder of"
                f" its own for --data-dir, such as {self.path / 'dzflow'}"
            )
        if not self._is_ours():
            return  # a folder with other files: each of our own is closed to others
        if mode & 0o077:
            self.path.chmod(0o700)
            if self.path.stat().st_mode & 0o077:
                raise NotPrivate(
                    f"{self.path} cannot be closed to other users: its file system keeps no modes;"
                    " choose a --data-dir on another one"
                )
        for entry in self.path.iterdir():
            if entry.lstat().st_uid not in (os.geteuid(), 0):
                raise NotPrivate(
                    f"another user has put {entry.name} into {self.path}, which was open to others;"
                    " check what is in the folder and remove what is not yours, or choose another"
                    " --data-dir"
                )

    def _is_ours(self) -> bool:
        """Whether a service has used the folder before, or can have it for itself."""
        try:
            lock = (self.path / _LOCK).lstat()
        except FileNotFoundError:
            return not any(self.path.iterdir())
        return stat.S_ISREG(lock.st_mode) and lock.st_uid == os.geteuid()


def _lets_others_write(status: os.stat_result) -> bool:
    """Whether a folder is open for others; a group that has only its owner is no other."""
    if not status.st_mode & stat.S_IWGRP or status.st_mode & stat.S_IWOTH:
        return bool(status.st_mode & stat.S_IWOTH)
    if status.st_gid != os.getegid():
        return True
    try:
        members = set(grp.getgrgid(status.st_gid).gr_mem)
        return bool(members - {pwd.getpwuid(status.st_uid).pw_name})
    except KeyError:
        return True  # a user or group without a name may be anybody's


def find_open_parent(path: Path) -> Path | None:
    """A folder above in which everybody could replace the data folder by another one."""
    for parent in path.absolute().parents:
        if parent.exists():
            mode = parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return parent
    return None
