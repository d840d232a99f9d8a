"""A control plane for all tests of the REST interface."""

import itertools
from collections.abc import Iterator

import httpx
import pytest

from tests.etcd import TestEtcd
from tests.rest import SCHEMA
from tests.stack import Stack

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane on emulated switches; spaces and hosts are shared by the tests."""
    with Stack(etcd_server.access()) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    """Calls the service that asks for no token."""
    with httpx.Client(base_url=stack.url, timeout=60) as made:
        yield made


@pytest.fixture
def guarded(stack: Stack) -> Iterator[httpx.Client]:
    """Calls the service that asks for tokens; without one."""
    with httpx.Client(base_url=stack.guarded_url, timeout=60) as made:
        yield made


@pytest.fixture
def space(client: httpx.Client) -> str:
    """A space of the test's own."""
    name = f"space-{next(_NUMBERS)}"
    client.put(f"/spaces/{name}", json=SCHEMA).raise_for_status()
    return name


@pytest.fixture(scope="session")
def quiet(stack: Stack) -> str:
    """A space in which no test leaves anything behind."""
    httpx.put(f"{stack.url}/spaces/quiet", json=SCHEMA, timeout=60).raise_for_status()
    return "quiet"
