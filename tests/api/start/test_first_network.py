"""The network that a service begins with."""

from typing import Any

import pytest

from api.start.first_network import AnotherNetwork, load_or_store_network
from api.start.settings.settings import BadSettings
from api.start.settings.sources import load
from configurators.store import keys
from configurators.store.documents import decode_network
from configurators.store.etcd.client import Etcd
from tests.etcd import TestEtcd


@pytest.mark.parametrize(
    "settings",
    [
        {"data_plane": "external", "discovery": {"links": "off"}},
        {"data_plane": "onos", "plan": "lpm"},
    ],
)
async def test_without_discovery_a_topology_is_needed_at_the_first_start(
    etcd_server: TestEtcd, settings: dict[str, Any]
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        with pytest.raises(BadSettings, match="topology: say what your network is like"):
            await load_or_store_network(etcd, load(None, settings, {}))


async def test_external_switches_are_discovered_unless_a_topology_declares_them(
    etcd_server: TestEtcd,
) -> None:
    alone = load(None, {"data_plane": "external", "trees": 2}, {})
    async with Etcd(etcd_server.access()) as etcd:
        made = await load_or_store_network(etcd, alone)
        assert made.discovered
        assert (made.switches, made.links, made.trees, made.tree_count) == ((), (), {}, 2)
        assert await load_or_store_network(etcd, alone) == made
        for other in ({"topology": "line:3"}, {"trees": 1}, {"plan": "lpm"}):
            with pytest.raises(AnotherNetwork):
                await load_or_store_network(
                    etcd, load(None, {"data_plane": "external"} | other, {})
                )


async def test_a_declared_network_is_loaded_at_later_starts(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        told = {"data_plane": "external", "topology": "line:3"}
        made = await load_or_store_network(etcd, load(None, told, {}))
        assert not made.discovered
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
