"""Runs a command in a child process of low priority, and ends it with all that it has started.

The child has a session of its own: Spark's Java machine and its Python workers belong to it, in
whichever process group they are. It ends with this process, too.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dzflow.process.private_files import private_opener
from dzflow.process.sessions import kill_others

_CHECK_EVERY = 0.02  # seconds between checks whether processes have ended
_LAUNCHER = (sys.executable, "-m", "dzflow.process.low_priority")


async def run_command(command: Sequence[str], log: Path, scratch: Path, time_limit: float) -> int:
    """Run a command, with its output in a log; its exit code. TimeoutError if it takes too long.

    However this ends, by a cancellation for example, no process is left, and neither is the folder
    `scratch`, which the command has for temporary files.
    """
    scratch.mkdir(mode=0o700)
    try:
        with open(log, "wb", opener=private_opener) as output:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*_LAUNCHER, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # That of this process, which holds no secrets but those that an operator names.
                env={**os.environ, "TMPDIR": str(scratch.absolute()), "COLUMNS": "100"},
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(time_limit):
                await _wait_for_end(process.pid)
        finally:
            await _end_session(process)
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    return process.returncode


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


async def _end_session(process: "subprocess.Popen[bytes]") -> None:
    os.kill(process.pid, signal.SIGKILL)  # it is there, as it was not waited for
    while kill_others(process.pid):
        await asyncio.sleep(_CHECK_EVERY)
    await asyncio.to_thread(process.wait)
