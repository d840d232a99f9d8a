"""Child processes of the service, as the parent sees them: started, restarted, stopped.

A child ends with the thread that started it, and when the parent's end of its input is closed. So
no process is left behind even if the parent is killed.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from configurators.store.etcd.errors import StoreError
from dzflow.aio import wait_for_any
from dzflow.errors import DzflowError
from dzflow.process.child_environment import child_environment
from dzflow.process.private_files import private_opener
from dzflow.process.sessions import kill_others

_log = logging.getLogger(__name__)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds until a dead child is restarted
CALM = 30.0  # seconds without trouble after which the next pause is short again
_OUTPUT_LIMIT = 4 << 20
_LINES_SHOWN = 15
_STDERR = 2
_CHECK_EVERY = 0.02  # seconds between checks whether processes have ended


class ChildFailed(DzflowError):
    """A child process has ended before it was ready."""


class ChildProcess:
    """One child; for one event loop, in a thread that lives as long as the child."""

    def __init__(
        self,
        name: str,
        module: str,
        orders: dict[str, Any],
        output: Path,
        *,
        files: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        patience: float = 10.0,
        on_report: Callable[[dict[str, Any]], None] = lambda _: None,
        to_stderr: bool = False,
    ) -> None:
        """`files` stay open in the child; `patience` is how many seconds it has to end in order.

        What it prints goes to the file `output`, or to our own stderr.

        It gets secrets with its orders, through a pipe, and not in its `environment`.
        """
        self.name = name
        self.ready = asyncio.Event()
        self.exited = asyncio.Event()
        self.ready_report: dict[str, Any] = {}  # its report that it was ready
        self.registered: str | None = None  # its key in etcd, which no other process uses
        self._module = module
        self._orders = orders
        self._output = output
        self._files = tuple(files)
        self._environment = child_environment() if environment is None else environment
        self._title = (name, str(output.parent.absolute()))
        self._patience = patience
        self._on_report = on_report
        self._to_stderr = to_stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = ""
        self._rest = b""
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process, None if there is none."""
        return self._process.pid if self._process and not self.exited.is_set() else None

    @property
    def explained(self) -> bool:
        """Whether it reported why it ended: it would end in the same way again."""
        return bool(self._reason)

    def start(self) -> None:
        """Start it, without waiting; OSError if that is not possible now."""
        self.ready.clear()
        self.registered = None
        self._reason, self._rest = "", b""
        if self._output.exists() and self._output.stat().st_size > _OUTPUT_LIMIT:
            self._output.replace(self._output.with_suffix(".out.1"))
        reading, writing = os.pipe()
        try:
            with self._open_output() as output:
                process = subprocess.Popen(  # noqa: S603 - our own module
                    # Name and place are for people who read the list of processes.
                    [sys.executable, "-m", self._module, str(writing), *self._title],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(writing, *self._files),
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is for the parent, which stops it in order
                )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            os.close(reading)
            process.kill()
            process.wait()
            raise
        self._process = process
        self.exited.clear()
        loop = asyncio.get_running_loop()
        os.set_blocking(reading, False)
        loop.add_reader(reading, self._read, reading)
        loop.add_reader(handle, self._gone, handle)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has died already, which `_gone` notices
            process.stdin.write(json.dumps(self._orders).encode() + b"\n")
            process.stdin.flush()

    def _open_output(self) -> IO[bytes]:
        if self._to_stderr:
            return open(os.dup(_STDERR), "wb")
        return open(self._output, "ab", opener=private_opener)

    async def await_ready(self, timeout: float) -> None:
        """Wait until it reports to be ready; ChildFailed, with its last output, if it does not."""
        await wait_for_any(self.ready, self.exited, timeout=timeout)
        if self.exited.is_set():
            raise ChildFailed(f"{self.name}: {self.last_words()}")
        if not self.ready.is_set():
            raise ChildFailed(f"{self.name} is not ready within {timeout:.0f} s; see the logs")

    async def stop(self) -> None:
        """Stop it in order, or kill it if it takes too long."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it is gone
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        try:
            async with asyncio.timeout(self._patience):
                await self.exited.wait()
        except TimeoutError:
            self.kill()
            await self.exited.wait()
        self.close_input()

    def kill(self) -> None:
        """Kill it."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        if self._process is not None and not self.exited.is_set():
            self._process.send_signal(number)

    def last_words(self) -> str:
        """Why it ended, as far as that is known."""
        if self._reason:
            return self._reason
        code = self._process.returncode if self._process else None
        try:
            lines = self._output.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
        except OSError:
            lines = []
        return "\n".join([f"ended with {code}", *lines])

    def close_input(self) -> None:
        """Close its input; the child then ends at once, as if this process were gone."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _gone(self, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        self.close_input()
        self._ending = asyncio.create_task(self._end_others())

    async def _end_others(self) -> None:
        """Kill the processes that the child started and left behind: all of its session."""
        assert self._process is not None
        while kill_others(self._process.pid):
            await asyncio.sleep(_CHECK_EVERY)
        self._process.wait()
        self.exited.set()

    def _read(self, reading: int) -> None:
        try:
            data = os.read(reading, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(reading)
            os.close(reading)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "failed" in report:
                self._reason = report["failed"]
            if "registered" in report:
                self.registered = report["registered"]
            if report.get("ready"):
                self.ready_report = report
                self.ready.set()
            self._on_report(report)


async def keep_running(
    child: ChildProcess,
    tell: Callable[[str], None],
    unregister: Callable[[str], Awaitable[None]] | None = None,
    unregister_within: float = 2.0,
) -> None:
    """Restart a child whenever it dies, with a longer pause each time it dies soon again.

    `unregister` is called with the etcd key of a child that has died, if it has reported one. A
    restart is delayed by it for at most `unregister_within` seconds.
    """
    loop = asyncio.get_running_loop()
    pause = SHORTEST_PAUSE
    while True:
        started = loop.time()
        await child.exited.wait()
        if loop.time() - started > CALM:
            pause = SHORTEST_PAUSE
        tell(f"{child.name} has died ({child.last_words().splitlines()[0]}) and is restarted")
        removals = []
        if unregister and child.registered:
            removals.append(_try(unregister, child.registered, unregister_within))
        await asyncio.gather(asyncio.sleep(pause), *removals)
        pause = min(2 * pause, LONGEST_PAUSE)
        while not _try_to_start(child, tell):
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _try_to_start(child: ChildProcess, tell: Callable[[str], None]) -> bool:
    """Start a child, or tell why that is not possible now."""
    try:
        child.start()
    except OSError as error:
        tell(f"{child.name} cannot be started now: {error}")
        return False
    return True


async def _try(unregister: Callable[[str], Awaitable[None]], key: str, seconds: float) -> None:
    """Try to unregister, but not for long: the child has to be restarted in any case."""
    try:
        async with asyncio.timeout(seconds):
            await unregister(key)
    except (StoreError, TimeoutError) as error:
        why = str(error) or "etcd has not answered in time"
        _log.warning("the requests of %s wait until its lease is over: %s", key, why)
    except Exception:
        _log.exception("the requests of %s wait until its lease is over", key)
