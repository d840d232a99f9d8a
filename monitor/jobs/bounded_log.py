"""Copies the output of a child process to a file, and keeps only its end."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from dzflow.process.private_files import private_opener

log = logging.getLogger(__name__)

_MOST_BYTES = 2 << 20  # of a file
_KEPT_BYTES = 1 << 20  # when it would get larger
_CHUNK = 1 << 16
_LAST_PARTS = 32  # that are read when the process has ended; a pipe holds less
_CUT = b"[the beginning of the output was cut off]\n"


class BoundedLog:
    """A pipe for the output of a process, which is copied to a file. Use as a context manager.

    The process gets `pipe`; call `started` when it has it. What it writes is lost if the file
    cannot be written, but the process is never held up by that.
    """

    def __init__(self, path: Path) -> None:
        """OSError if the file cannot be opened."""
        self._path = path
        self._file = open(path, "w+b", buffering=0, opener=private_opener)  # noqa: SIM115
        self._written = 0  # bytes in the file
        self._broken = False
        self._loop = asyncio.get_running_loop()
        self._source, self.pipe = os.pipe()
        os.set_blocking(self._source, False)

    def __enter__(self) -> Self:
        self._loop.add_reader(self._source, self._copy)
        return self

    def started(self) -> None:
        """Close our copy of the end of the pipe that the process writes to."""
        os.close(self.pipe)
        self.pipe = -1

    def __exit__(self, *_: object) -> None:
        """Copy what is left in the pipe. A process that still has the other end cannot block it."""
        with self._file:
            self._loop.remove_reader(self._source)
            for _attempt in range(_LAST_PARTS):
                if not self._copy():
                    break
            os.close(self._source)
            if self.pipe >= 0:
                self.started()

    def _copy(self) -> bool:
        """Copy a part of what is in the pipe; False if there is nothing."""
        data = b""
        with suppress(BlockingIOError):
            data = os.read(self._source, _CHUNK)
            if not data:  # all processes have closed it
                self._loop.remove_reader(self._source)
        if data and not self._broken:
            try:
                self._write(data)
            except OSError as error:
                self._broken = True
                log.warning("%s is incomplete: %s", self._path, error)
        return bool(data)

    def _write(self, data: bytes) -> None:
        if self._written + len(data) > _MOST_BYTES:
            self._file.seek(self._written - min(self._written, _KEPT_BYTES))
            data = _CUT + self._file.read(_KEPT_BYTES).partition(b"\n")[2] + data
            self._file.seek(0)
            self._file.truncate()
            self._written = 0
        while data:  # a file without a buffer may take a part only
            count = self._file.write(data)
            self._written += count
            data = data[count:]
