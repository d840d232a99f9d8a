"""Sessions of processes: a child that is started in one of its own is ended with all it started."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def kill_others(number: int) -> bool:
    """Kill the processes of a session but for the one that it is named after; whether any lives.

    Call it until none lives, and only then wait for the one that it is named after: until then no
    other process or session can have its number.
    """
    others = _others(number)
    for pid in others:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(others)


def _others(number: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != number:
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended, or belongs to another user, and is hidden (`hidepid`)
            # The name in parentheses may hold anything.
            state, _, _, session = stat.rpartition(")")[2].split()[:4]
            if int(session) == number and state not in "ZX":
                found.append(int(entry.name))
    return found
