"""The network that a service begins with."""

from pathlib import Path
from typing import Any

import pytest

from api.start.first_network import AnotherNetwork, load_or_store_network
from api.start.settings.settings import BadSettings
from api.start.settings.sources import load
from configurators.store import keys
from configurators.store.documents import decode_network
from configurators.store.etcd.client import Etcd
from sdn.network.switch_limits import SwitchLimits
from sdn.tables.pipeline import OutOfTables
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


FILE = "switches: [{id: s1, dpid: 5%s}, s2]\nlinks: [[s1, s2]]\nhosts: [{id: h1, switch: s1}]\n"


async def test_the_stored_network_follows_what_the_file_says_about_single_switches(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    file = tmp_path / "net.yaml"
    told = {"data_plane": "external", "topology": str(file)}
    async with Etcd(etcd_server.access()) as etcd:
        file.write_text(FILE % "")
        before = await load_or_store_network(etcd, load(None, told, {}))
        file.write_text(FILE % ", rate: 45, tables: [3, 9]")
        doc = await load_or_store_network(etcd, load(None, told, {}))
        assert doc.switches[0].limits == SwitchLimits(rate=45, tables=(3, 9))
        assert doc.pipeline.table_ranges == {"s1": (3, 9)}
        assert (doc.switches[0].label, doc.unprobed) == ("", ())
        # Without the file, what is stored counts.
        assert await load_or_store_network(etcd, load(None, {"data_plane": "external"}, {})) == doc
        file.write_text(FILE % ", tables: [3, 5]")
        with pytest.raises(OutOfTables, match="switch s1 has 2 legs but tables for 1"):
            await load_or_store_network(etcd, load(None, told, {}))
        file.write_text(FILE % "")
        assert await load_or_store_network(etcd, load(None, told, {})) == before
        hidden = (FILE % ", label: top").replace("[s1, s2]", "{a: s1, b: s2, lldp: false}")
        file.write_text(hidden)
        doc = await load_or_store_network(etcd, load(None, told, {}))
        assert (doc.switches[0].label, doc.unprobed) == ("top", before.links)
        file.write_text((FILE % "").replace("dpid: 5", "dpid: 6"))
        with pytest.raises(AnotherNetwork):
            await load_or_store_network(etcd, load(None, told, {}))
