"""The stand-in for a Ray cluster of others gets the ports that it was given, or other ones."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.ray_nodes
from configurators.store.server.server import free_ports
from tests.ray_nodes import PORT_OPTIONS, ray_with_clients


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# Ray ends without the one, and waits for ever for the other.
@pytest.mark.parametrize("option", ["ray-client-server-port", "port"])
def test_a_port_that_another_program_has_taken_is_given_up(
    taken: int, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[int]] = []

    def ports(count: int) -> list[int]:
        given.append(free_ports(count))
        if len(given) == 1:
            given[0][PORT_OPTIONS.index(option)] = taken
        return given[-1]

    monkeypatch.setattr(tests.ray_nodes, "free_ports", ports)
    with ray_with_clients(tmp_path) as cluster:
        port = int(cluster.address.rpartition(":")[2])
        assert port in cluster.listening()
        assert taken not in cluster.ports
    assert len(given) == 2, "those of the node and of its workers are drawn together"
