import pytest


@pytest.fixture(autouse=True)
def _nothing_left_open(nothing_left_open: None) -> None:
    """No test of the driver leaves a thread or a socket."""
