"""The network that a service begins with."""

import pytest

from api.start.first_network import load_or_store_network
from api.start.settings.settings import BadSettings
from api.start.settings.sources import load
from configurators.store.etcd.client import Etcd
from tests.etcd import TestEtcd


async def test_external_switches_need_a_topology_at_the_first_start(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        with pytest.raises(BadSettings, match="topology: say what your network is like"):
            await load_or_store_network(etcd, load(None, {"data_plane": "external"}, {}))
        told = {"data_plane": "external", "topology": "line:3"}
        made = await load_or_store_network(etcd, load(None, told, {}))
        assert await load_or_store_network(etcd, load(None, {"data_plane": "external"}, {})) == made
