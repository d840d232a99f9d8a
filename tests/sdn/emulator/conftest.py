import inspect

import pytest


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> None:
    """No async test of the emulator leaves a task or a socket."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("nothing_left_open")
        request.getfixturevalue("no_task_left")
