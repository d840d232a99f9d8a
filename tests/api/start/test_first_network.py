"""The network that a service begins with."""

import pytest

from api.start.first_network import load_or_store_network
from api.start.settings.settings import BadSettings
from api.start.settings.sources import load
from configurators.store import keys
from configurators.store.documents import decode_network
from configurators.store.etcd.client import Etcd
from tests.etcd import TestEtcd


async def test_external_switches_need_a_topology_at_the_first_start(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        with pytest.raises(BadSettings, match="topology: say what your network is like"):
            await load_or_store_network(etcd, load(None, {"data_plane": "external"}, {}))
        told = {"data_plane": "external", "topology": "line:3"}
        made = await load_or_store_network(etcd, load(None, told, {}))
        assert await load_or_store_network(etcd, load(None, {"data_plane": "external"}, {})) == made


async def test_the_stored_network_follows_the_setting_for_other_traffic(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        told = {"data_plane": "external", "topology": "line:3"}
        normal = {**told, "openflow": {"other_traffic": "normal"}}
        for given, expected in ((told, "leave"), (normal, "normal"), (told, "leave")):
            made = await load_or_store_network(etcd, load(None, given, {}))
            assert made.pipeline.other_traffic == expected
            stored = await etcd.get(keys.NETWORK)
            assert stored
            assert decode_network(stored.value) == made
            await load_or_store_network(etcd, load(None, given, {}))
            again = await etcd.get(keys.NETWORK)
            assert again == stored  # nothing was written
