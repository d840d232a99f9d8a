import os
import threading
from collections.abc import Iterator

import pytest


def _sockets() -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except FileNotFoundError:
            continue  # the one that lists the folder
    return count


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No test may leave a thread or a socket."""
    before = set(threading.enumerate()), _sockets()
    yield
    assert (set(threading.enumerate()), _sockets()) == before
