"""The data folder: locked by one service, with the secrets that are kept in it."""

import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from dzflow.errors import DzflowError


class FolderInUse(DzflowError):
    """Another service uses the data folder."""


class DataFolder:
    """The folder, locked for one service while it is entered; only its owner can read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not for a folder such as /tmp that has other files in it.
            if (self.path / "up.lock").exists() or not any(self.path.iterdir()):
                self.path.chmod(0o700)
            (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
            lock = (self.path / "up.lock").open("a+")
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
            draft = path.with_suffix(".draft")
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(32))
            draft.rename(path)
        return path.read_text().strip()
