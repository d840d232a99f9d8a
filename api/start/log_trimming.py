"""Keeps files small that other programs write to: the output of child processes, and etcd's log.

These programs keep the file open, so that it cannot be renamed as our own logs are. It is copied
and then truncated; they open it for appending, and go on at its beginning. A line that is written
between the two steps is lost.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

_log = logging.getLogger(__name__)

_EVERY = 10.0  # seconds


def trim(path: Path, size: int, kept: int) -> bool:
    """Move what a file has to `NAME.1` if it is larger than `size`; whether it was.

    Older copies become `NAME.2` and so on, at most `kept` of them.
    """
    if not path.exists() or path.stat().st_size <= size:
        return False
    for number in range(kept, 1, -1):
        older = _copy(path, number - 1)
        if older.exists():
            older.replace(_copy(path, number))
    shutil.copy(path, _copy(path, 1))
    os.truncate(path, 0)
    return True


async def keep_trimmed(
    files: Callable[[], Iterable[Path]], size: int, kept: int, every: float = _EVERY
) -> None:
    """Trim files again and again, until cancelled; an error is logged."""
    while True:
        for path in files():
            try:
                await asyncio.to_thread(trim, path, size, kept)
            except OSError as error:
                _log.warning("%s cannot be trimmed: %s", path, error)
        await asyncio.sleep(every)


def _copy(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
