import threading
from collections.abc import Iterator

import pytest

from tests.dzflow.sdk.service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running
    # Whatever a test opened has ended with it.
    assert [thread.name for thread in threading.enumerate() if thread.name == "dzflow"] == []
