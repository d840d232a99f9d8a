import threading
from collections.abc import Iterator

import pytest

from tests.dzflow.sdk.fake_service import FakeService


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running
    # The SDK's thread ends with the last client.
    assert [thread.name for thread in threading.enumerate() if thread.name == "dzflow"] == []
