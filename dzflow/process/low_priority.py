"""Runs a command with low priority that ends with its parent: `python -m … PARENT COMMAND…`.

PARENT is the process id of the parent. The kernel ends the command when the thread that started it
ends.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NICENESS = 19  # all other processes come first


def main(parent: int, command: list[str]) -> None:
    """Become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)  # the parent is gone already
    os.nice(_NICENESS)
    os.execvp(command[0], command)  # noqa: S606 - the command of our parent


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
