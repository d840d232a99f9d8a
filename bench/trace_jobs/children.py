"""Runs a command, and measures it with all processes that it starts: time, processor, memory."""

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.processes.cpu import process_seconds
from bench.report import Row
from dzflow.errors import DzflowError

_OFTEN, _SELDOM = 0.02, 0.25  # seconds between samples, at first and later
_SAMPLES = 40  # in each doubling of the time: a sample takes some milliseconds itself
_PROC = Path("/proc")
_MOST_TEXT = 2_000  # characters of an error message


class JobFailed(DzflowError):
    """A job did not end with success."""


class Usage(NamedTuple):
    """What a command took. Memory is the sum of the most that each living process has had."""

    seconds: float
    cpu_s: float
    peak_mb: float

    def columns(self, rows: int) -> Row:
        """The columns of a row, for so many rows of traces."""
        return {
            "seconds": self.seconds,
            "rows_per_s": rows / self.seconds,
            "cpu_s": self.cpu_s,
            "peak_mb": self.peak_mb,
        }


def run_measured(command: Sequence[str | Path]) -> Usage:
    """Run a command to its end; JobFailed with the end of its output if it fails.

    Processor time and memory are read again and again, at least four times a second, so what a
    process does just before its end may be missing. Memory that processes share counts in each.
    """
    cpu: dict[int, float] = {}
    peak = 0
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603 - ours
        try:
            while child.poll() is None:
                found = process_seconds(child.pid)
                cpu |= found
                peak = max(peak, sum(map(_most_memory, found)))
                elapsed = time.monotonic() - began
                time.sleep(min(max(elapsed / _SAMPLES, _OFTEN), _SELDOM))
        finally:
            child.kill()
            child.wait()
        seconds = time.monotonic() - began
        if child.returncode:
            output.seek(0)
            text = output.read().decode(errors="replace")[-_MOST_TEXT:]
            raise JobFailed(f"{Path(command[0]).name} ended with {child.returncode}: {text}")
    return Usage(seconds, sum(cpu.values()), peak / 1_024)


def _most_memory(pid: int) -> int:
    """The most memory that a process has had, in kB; 0 if it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
