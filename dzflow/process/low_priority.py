"""Runs a command with low priority that ends with its parent.

It is called as `python -m … PARENT NICENESS COMMAND…`. PARENT is the process id of the parent, and
NICENESS is 0 (the priority of the parent) to 19 (the lowest one). Start it in a session of its own.
The kernel ends the command when the thread that started it ends.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_AUTOGROUP = Path("/proc/self/autogroup")


def main(parent: int, niceness: int, command: list[str]) -> None:
    """Become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)  # the parent is gone already
    os.nice(niceness)
    # With autogroups, the kernel shares processor time among sessions first, so that the niceness
    # of a process only counts within its own session. Kernels without autogroups lack the file,
    # containers may mount /proc read-only, and the kernel refuses changes in quick succession; the
    # command runs all the same.
    with suppress(OSError):
        _AUTOGROUP.write_text(str(niceness))
    os.execvp(command[0], command)  # noqa: S606 - the command of our parent


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
