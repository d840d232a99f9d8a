from pathlib import Path

import pytest

from sdn.network.topologies import MAX_SWITCHES, TopologyTooLarge, UnknownTopology, topology
from sdn.network.topology import Host, Topology
from sdn.network.topology_file import TopologyFileUnreadable


def degrees(net: Topology) -> list[int]:
    return [len(net.switch_ports(s.id)) + len(net.hosts_at(s.id)) for s in net.switches]


def peers(net: Topology, switch: str) -> set[str]:
    return {neighbour.switch for neighbour in net.neighbours(switch)}


@pytest.mark.parametrize(
    ("name", "switches", "links", "hosts"),
    [
        ("line:1", 1, 0, 1),
        ("line:5", 5, 4, 5),
        ("ring:3", 3, 3, 3),
        ("ring:12", 12, 12, 12),
        ("tree:1,1", 1, 0, 1),
        ("tree:1,4", 1, 0, 4),
        ("tree:2,2", 3, 2, 4),
        ("tree:3,3", 13, 12, 27),
        ("tree:4,1", 4, 3, 1),
        ("fat-tree:10", 10, 16, 8),
        ("fat-tree:102", 102, 224, 64),
        (f"line:{MAX_SWITCHES}", MAX_SWITCHES, MAX_SWITCHES - 1, MAX_SWITCHES),
    ],
)
def test_a_name_gives_so_many_switches_links_and_hosts(
    name: str, switches: int, links: int, hosts: int
) -> None:
    net = topology(name)
    assert (len(net.switches), len(net.links), len(net.hosts)) == (switches, links, hosts)


NAMES = ["line:4", "ring:4", "tree:3,2", "fat-tree:10", "fat-tree:102"]


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_numbered_from_one(name: str) -> None:
    net = topology(name)
    numbers = range(1, len(net.switches) + 1)
    assert [(s.id, s.dpid) for s in net.switches] == [(f"s{n}", n) for n in numbers]
    assert [host.id for host in net.hosts] == [f"h{n}" for n in range(1, len(net.hosts) + 1)]
    for switch in net.switches:
        hosts = [host.port for host in net.hosts_at(switch.id)]
        ports = [*net.switch_ports(switch.id), *hosts]
        assert ports == list(range(1, len(ports) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_always_gives_the_same(name: str) -> None:
    assert topology(name) == topology(name)


def test_a_line_has_two_ends() -> None:
    net = topology("line:4")
    assert [peers(net, s.id) for s in net.switches] == [{"s2"}, {"s1", "s3"}, {"s2", "s4"}, {"s3"}]
    assert [host.switch for host in net.hosts] == ["s1", "s2", "s3", "s4"]


def test_a_ring_has_none() -> None:
    net = topology("ring:4")
    assert degrees(net) == [3, 3, 3, 3]
    assert peers(net, "s1") == {"s2", "s4"}


def test_a_tree_is_numbered_as_in_mininet() -> None:
    net = topology("tree:3,2")
    assert peers(net, "s1") == {"s2", "s5"}
    assert peers(net, "s2") == {"s1", "s3", "s4"}
    homes = [host.switch for host in net.hosts]
    assert homes == ["s3", "s3", "s4", "s4", "s6", "s6", "s7", "s7"]


def test_the_testbed_has_four_ports_at_each_switch() -> None:
    assert degrees(topology("fat-tree:10")) == [4] * 10


def test_the_testbed_is_wired_as_in_the_thesis() -> None:
    net = topology("fat-tree:10")
    assert peers(net, "s1") == peers(net, "s2") == {"s3", "s4", "s5", "s6"}
    assert peers(net, "s7") == peers(net, "s8") == {"s3", "s4"}
    assert peers(net, "s9") == peers(net, "s10") == {"s5", "s6"}
    assert [host.switch for host in net.hosts] == [f"s{n}" for n in (7, 7, 8, 8, 9, 9, 10, 10)]


def test_the_large_fat_tree_has_sixteen_pods_below_six_cores() -> None:
    net = topology("fat-tree:102")
    assert degrees(net) == [16] * 6 + [7] * 32 + [3] * 64
    assert peers(net, "s7") == {"s1", "s2", "s3", "s39", "s40", "s41", "s42"}
    assert peers(net, "s8") == {"s4", "s5", "s6", "s39", "s40", "s41", "s42"}
    assert peers(net, "s102") == {"s37", "s38"}
    assert [host.switch for host in net.hosts] == [f"s{n}" for n in range(39, 103)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "line",
        "line:",
        "line:0",
        "line:-1",
        "line:x",
        "line:1,2",
        "line:٣",
        "Line:3",
        " line:3",
        "ring:2",
        "tree:2",
        "tree:0,2",
        "tree:2,0",
        "tree:2,2,2",
        "fat-tree:11",
        "fat-tree",
        "star:3",
        "network.toml",
    ],
)
def test_an_unknown_name_is_answered_with_what_there_is(name: str) -> None:
    with pytest.raises(UnknownTopology) as caught:
        topology(name)
    for possible in ("line:N", "ring:N", "tree:", "fat-tree:10", "fat-tree:102", ".yaml", ".json"):
        assert possible in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        f"line:{MAX_SWITCHES + 1}",
        f"ring:{MAX_SWITCHES + 1}",
        "line:" + "9" * 5000,
        "tree:13,2",
        "tree:1,20000",
        "tree:2,4000",
        "tree:999999999,999999999",
        "tree:999999999,1",
    ],
)
def test_a_name_for_something_huge_is_refused(name: str) -> None:
    with pytest.raises(TopologyTooLarge, match="4,096"):
        topology(name)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json", "JSON"])
def test_the_path_of_a_file_is_a_name_too(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net.{suffix}"
    path.write_text('{"switches": ["s1"], "hosts": [{"id": "h1", "switch": "s1"}]}')
    assert topology(str(path)).hosts == (Host("h1", "s1", 1),)


def test_a_file_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(TopologyFileUnreadable, match=r"missing\.yaml"):
        topology("/nowhere/missing.yaml")
