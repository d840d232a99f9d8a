"""What tests of all packages can use."""

from collections.abc import Iterator

import pytest

from configurators.store.server import EtcdServer, NoEtcd, find_etcd
from tests.etcd import TestEtcd


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEtcd]:
    """An etcd for all tests; `.access()` gives each of them a prefix of its own."""
    try:
        find_etcd()
    except NoEtcd as missing:
        pytest.skip(str(missing))
    with EtcdServer(tmp_path_factory.mktemp("etcd"), fsync=False) as server:
        yield TestEtcd(server)
