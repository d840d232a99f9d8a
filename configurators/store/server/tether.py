"""Runs a program that the kernel kills when the thread that started it ends.

This file runs as a script, which the program replaces: both have the same process id.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tethered(argv: list[str]) -> list[str]:
    """The command that runs `argv`, tied to the thread that starts it. Linux only."""
    # Without site-packages, so that it starts quickly.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]


def main(parent: int, argv: list[str]) -> None:
    """Become the program, unless the parent has ended already."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        sys.exit("the parent has ended")
    os.execv(argv[0], argv)  # noqa: S606 - the caller's own program, by its path


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
