"""Runs a command in a child process of low priority, and ends it with all that it has started.

The child has its own session: Spark's Java machine and its Python workers belong to it, in
whichever process group they are. It ends with this process, too.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVarTuple

from dzflow.process.private_files import write_private
from dzflow.process.sessions import kill_others
from monitor.jobs.bounded_log import BoundedLog

Ts = TypeVarTuple("Ts")

LOWEST_PRIORITY = 19
"""The niceness with which all other processes come first."""

_CHECK_EVERY = 0.02  # seconds between checks whether processes have ended
_LAUNCHER = (sys.executable, "-m", "dzflow.process.low_priority")


async def run_command(
    command: Sequence[str],
    log: Path,
    scratch: Path,
    time_limit: float,
    niceness: int = LOWEST_PRIORITY,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> int:
    """Run a command, with its output in a log; its exit code. TimeoutError if it takes too long.

    However this ends, also by a cancellation, no process is left, and the folder `scratch` for
    temporary files is removed. A cancellation waits for that. `files` are in this folder when the
    command begins, readable by their owner only.
    """
    process: subprocess.Popen[bytes] | None = None
    scratch.mkdir(mode=0o700)
    try:
        for name, data in files.items():
            await _finish(write_private, scratch / name, data)
        with BoundedLog(log) as output:
            try:
                process = subprocess.Popen(  # noqa: S603 - our own command
                    [*_LAUNCHER, str(os.getpid()), str(niceness), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output.pipe,
                    stderr=output.pipe,
                    # That of this process, which holds no secrets but those that an operator names.
                    env={**os.environ, "TMPDIR": str(scratch.absolute()), "COLUMNS": "100"},
                    start_new_session=True,
                )
                output.started()
                async with asyncio.timeout(time_limit):
                    await _wait_for_end(process.pid)
            finally:
                if process:
                    await _finish(_end_session, process)
    finally:
        await _finish(_remove_folder, scratch)
    return process.returncode


async def _finish(work: Callable[[*Ts], None], *subjects: *Ts) -> None:
    """Do something in a thread, and wait for its end even if this task is cancelled.

    The cancellation is raised afterwards, also if the work has failed.
    """
    ending = asyncio.get_running_loop().run_in_executor(None, work, *subjects)
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait([ending])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled from ending.exception()
    ending.result()


async def _wait_for_end(pid: int) -> None:
    """Wait until a child has ended; it stays to be waited for."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(pid)
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _end_session(process: "subprocess.Popen[bytes]") -> None:
    os.kill(process.pid, signal.SIGKILL)  # it is there, as it was not waited for
    while kill_others(process.pid):
        time.sleep(_CHECK_EVERY)
    process.wait()


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
