"""What every process of the service does first, so that its secrets stay in it."""

import os
import resource

UMASK = 0o077


def harden_process() -> None:
    """Make new files readable by this user only, and leave no core dump after a crash.

    Both hold for all processes that this one starts. The hard limit stays: an operator who needs a
    core dump raises the limit of a running process with `prlimit --core`.
    """
    os.umask(UMASK)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
