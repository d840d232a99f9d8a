from pathlib import Path

import pytest

from configurators.store.etcd.endpoints import ReachableSocket, host_of, socket_path
from configurators.store.etcd.errors import StoreRefused


@pytest.mark.parametrize(
    ("endpoint", "path", "host"),
    [
        ("127.0.0.1:2379", None, "127.0.0.1"),
        ("[::1]:2379", None, "::1"),
        ("m1.example:2379", None, "m1.example"),
        ("unix:/run/etcd", Path("/run/etcd"), None),
        ("unix:///run/etcd", Path("/run/etcd"), None),
        ("unix:here", Path("here"), None),
        # What gRPC would take as another kind of name counts as a host beyond loopback.
        ("dns:///127.0.0.1:2379", None, "dns:///127.0.0.1"),
        ("http://127.0.0.1:2379", None, "http://127.0.0.1"),
    ],
)
def test_an_endpoint_is_a_socket_or_a_host(
    endpoint: str, path: Path | None, host: str | None
) -> None:
    assert (socket_path(endpoint), host_of(endpoint)) == (path, host)


def test_gRPC_gets_a_path_that_it_reads_as_it_is_meant() -> None:  # noqa: N802
    assert ReachableSocket(Path("/a b/100%/#?")).target == "unix:/a%20b/100%25/%23%3F"


def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120) / "socket"
    with pytest.raises(StoreRefused, match="xxx, cannot be opened: No such file"):
        ReachableSocket(path)
