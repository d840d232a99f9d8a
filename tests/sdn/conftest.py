import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.certificates import Keys, make_keys
from tests.support import until_sync


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def nothing_left_open() -> Iterator[None]:
    """The test closes all its sockets, and ends all its threads."""
    before = _threads(), _sockets()
    yield
    assert _threads() <= before[0]
    # A service of other tests may run in this process, too; its sockets come and go.
    until_sync(lambda: _sockets() <= before[1])


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """The test ends all its tasks."""
    yield
    await asyncio.sleep(0)  # tasks that were cancelled just now end
    names = [str(task.get_coro()) for task in asyncio.all_tasks()]
    assert [name for name in names if "TestRunner." not in name] == []  # anyio's own tasks


def _threads() -> set[threading.Thread]:
    """All threads, but for those in which event loops have something done.

    A loop ends its own when it ends. Those of a service of other tests may come at any time.
    """
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


def _sockets() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
        if target.startswith("socket:"):
            found.add(target)
    return found
