import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.errors import BadInput
from sdn.network.topology import (
    BadDpid,
    BadId,
    BadIpv6,
    BadMac,
    BadPort,
    DuplicateDpid,
    DuplicateHost,
    DuplicateSwitch,
    Host,
    Leg,
    Link,
    Neighbour,
    NoSwitches,
    NotConnected,
    PortTaken,
    SelfLink,
    Switch,
    ToHost,
    Topology,
    TopologyError,
    ToSwitch,
    UnknownHost,
    UnknownSwitch,
    natural_key,
)
from tests.strategies import topologies

S1, S2, S3 = Switch("s1", 1), Switch("s2", 2), Switch("s3", 3)
L12, L23, L31 = Link("s1", 1, "s2", 1), Link("s2", 2, "s3", 1), Link("s3", 2, "s1", 2)
H1, H2 = Host("h1", "s1", 3), Host("h2", "s2", 3)


@pytest.fixture
def triangle() -> Topology:
    return Topology.build([S1, S2, S3], [L12, L23, L31], [H1, H2])


def test_a_link_is_the_same_from_both_ends() -> None:
    assert Link("s2", 1, "s1", 4) == Link("s1", 4, "s2", 1)
    assert Link("s2", 1, "s1", 4).ends == (("s1", 4), ("s2", 1))
    assert msgspec.convert({"a": "s2", "a_port": 1, "b": "s1", "b_port": 4}, Link).a == "s1"


@pytest.mark.parametrize("leg", [ToSwitch(3), ToHost("h1")])
def test_a_leg_survives_encoding(leg: Leg) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(leg), type=Leg) == leg


def test_numbers_in_names_sort_as_numbers() -> None:
    names = ["s10", "s2", "a", "s2b", "s02", "10", "s2a1"]
    assert sorted(names, key=natural_key) == ["10", "a", "s02", "s2", "s2a1", "s2b", "s10"]


def test_switches_and_hosts_are_found_by_id(triangle: Topology) -> None:
    assert triangle.switch("s2") == S2
    assert triangle.host("h2") == H2


def test_neighbours_come_by_port(triangle: Topology) -> None:
    assert triangle.neighbours("s1") == ((1, "s2", 1), (2, "s3", 2))
    assert triangle.neighbours("s1")[0] == Neighbour(port=1, switch="s2", peer_port=1)
    assert triangle.switch_ports("s1") == (1, 2)


def test_a_port_has_a_link_a_host_or_nothing(triangle: Topology) -> None:
    assert triangle.at("s1", 1) == L12
    assert triangle.at("s2", 1) == L12
    assert triangle.at("s1", 3) == H1
    assert triangle.at("s1", 4) is None


def test_hosts_of_a_switch_come_in_natural_order() -> None:
    hosts = [Host("h10", "s1", 1), Host("h9", "s1", 2)]
    topology = Topology.build([S1], [], hosts)
    assert [host.id for host in topology.hosts_at("s1")] == ["h9", "h10"]
    assert topology.hosts == topology.hosts_at("s1")


def test_a_switch_may_have_no_host(triangle: Topology) -> None:
    assert triangle.hosts_at("s3") == ()


def test_parallel_links_are_allowed() -> None:
    second = Link("s1", 2, "s2", 2)
    topology = Topology.build([S1, S2], [second, L12], [])
    assert topology.links == (L12, second)
    assert topology.neighbours("s1") == ((1, "s2", 1), (2, "s2", 2))


def test_what_is_not_there_is_unknown(triangle: Topology) -> None:
    with pytest.raises(UnknownHost, match="'h9'"):
        triangle.host("h9")
    with pytest.raises(UnknownSwitch, match="'s9'"):
        triangle.switch("s9")
    with pytest.raises(UnknownSwitch):
        triangle.neighbours("s9")
    with pytest.raises(UnknownSwitch):
        triangle.switch_ports("s9")
    with pytest.raises(UnknownSwitch):
        triangle.hosts_at("s9")
    with pytest.raises(UnknownSwitch):
        triangle.at("s9", 1)


def test_the_order_of_the_parts_does_not_matter(triangle: Topology) -> None:
    turned = Topology.build([S3, S2, S1], [L31, L12, L23], [H2, H1])
    assert turned == triangle
    assert hash(turned) == hash(triangle)
    assert turned.links == triangle.links


BAD: list[tuple[type[TopologyError], str, list[Switch], list[Link], list[Host]]] = [
    (NoSwitches, "no switch", [], [], []),
    (DuplicateSwitch, "switch s1", [S1, Switch("s1", 9)], [], []),
    (DuplicateSwitch, "switch s1", [S1, S1], [], []),
    (DuplicateDpid, "switch x: s1 has dpid 1", [S1, Switch("x", 1)], [], []),
    (DuplicateHost, "host h1", [S1], [], [H1, Host("h1", "s1", 9)]),
    (DuplicateHost, "host h1", [S1], [], [H1, H1]),
    (PortTaken, "s1:1 - s2:1", [S1, S2], [L12, Link("s1", 1, "s2", 2)], []),
    (PortTaken, "s1:1 - s2:1", [S1, S2], [L12, L12], []),
    (PortTaken, "s1:1 - s2:1", [S1, S2], [L12], [Host("h1", "s1", 1)]),
    (PortTaken, "host h1", [S1], [], [H1, Host("h2", "s1", 3)]),
    (UnknownSwitch, "'s2'", [S1], [L12], []),
    (UnknownSwitch, "'s2'", [S1], [], [H2]),
    (BadPort, "port 0", [S1, S2], [Link("s1", 0, "s2", 1)], []),
    (BadPort, "port 65280", [S1], [], [Host("h1", "s1", 65280)]),
    (SelfLink, "s1", [S1], [Link("s1", 1, "s1", 2)], []),
    (NotConnected, r"2 parts.*\(s1, s3\), \(s2\)", [S1, S2, S3], [L31], []),
    (BadDpid, "dpid 0", [Switch("s1", 0)], [], []),
    (BadDpid, "dpid 1844", [Switch("s1", 2**64)], [], []),
    (BadMac, "h1", [S1], [], [Host("h1", "s1", 1, mac="02:00:00:00:00")]),
    (BadMac, "h1", [S1], [], [Host("h1", "s1", 1, mac="33:33:00:00:00:d2")]),
    (BadMac, "h1", [S1], [], [Host("h1", "s1", 1, mac="00:00:00:00:00:00")]),
    (BadIpv6, "h1", [S1], [], [Host("h1", "s1", 1, ipv6="10.0.0.1")]),
    (BadIpv6, "h1", [S1], [], [Host("h1", "s1", 1, ipv6="ff1e::d2")]),
    (BadIpv6, "h1", [S1], [], [Host("h1", "s1", 1, ipv6="::")]),
    (BadIpv6, "h1", [S1], [], [Host("h1", "s1", 1, ipv6="fe80::1%eth0")]),
]


@pytest.mark.parametrize(("error", "message", "switches", "links", "hosts"), BAD)
def test_parts_that_do_not_fit_are_refused_by_name(
    error: type[TopologyError],
    message: str,
    switches: list[Switch],
    links: list[Link],
    hosts: list[Host],
) -> None:
    with pytest.raises(error, match=message):
        Topology.build(switches, links, hosts)


@pytest.mark.parametrize("bad", ["", "a b", "ä", "s1\n", "a/b", "x" * 65])
def test_a_bad_id_is_refused(bad: str) -> None:
    with pytest.raises(BadId):
        Topology.build([Switch(bad, 1)], [], [])
    with pytest.raises(BadId):
        Topology.build([S1], [], [Host(bad, "s1", 1)])


def test_what_is_just_within_the_limits_is_accepted() -> None:
    long = "Az0_.-" + "x" * 58
    host = Host(long, long, 65279, mac="02:AB:cd:00:00:01", ipv6="fd00::1")
    assert Topology.build([Switch(long, 2**64 - 1)], [], [host]).host(long) == host


def test_an_error_carries_the_part_at_fault() -> None:
    with pytest.raises(PortTaken) as caught:
        Topology.build([S1], [], [H1, Host("h2", "s1", 3)])
    assert caught.value.element == Host("h2", "s1", 3)
    assert isinstance(caught.value, BadInput)


def test_an_error_survives_pickling() -> None:
    with pytest.raises(NotConnected) as caught:
        Topology.build([S1, S2], [], [])
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(again) == str(caught.value)
    assert again.parts == (("s1",), ("s2",))


def test_many_parts_are_named_in_part_only() -> None:
    with pytest.raises(NotConnected) as caught:
        Topology.build([Switch(f"s{n}", n) for n in range(1, 1000)], [], [])
    assert len(str(caught.value)) < 200
    assert len(caught.value.parts) == 999


def test_a_host_can_be_added(triangle: Topology) -> None:
    host = Host("h3", "s3", 7)
    more = triangle.with_host(host)
    assert more.host("h3") == host
    assert more.at("s3", 7) == host
    assert more.hosts_at("s3") == (host,)
    assert more == Topology.build([S1, S2, S3], [L12, L23, L31], [H1, H2, host])
    assert triangle.hosts_at("s3") == ()


def test_a_host_can_move(triangle: Topology) -> None:
    moved = triangle.with_host(Host("h1", "s3", 7))
    assert moved.at("s1", 3) is None
    assert moved.hosts_at("s1") == ()
    assert moved.host("h1").switch == "s3"
    assert len(moved.hosts) == 2


def test_a_host_can_stay_where_it_is(triangle: Topology) -> None:
    again = Host("h1", "s1", 3, mac="02:00:00:00:00:01")
    assert triangle.with_host(again).at("s1", 3) == again


def test_a_host_cannot_move_onto_a_port_in_use(triangle: Topology) -> None:
    with pytest.raises(PortTaken, match="host h2"):
        triangle.with_host(Host("h1", "s2", 3))
    with pytest.raises(PortTaken, match="link s1:1 - s2:1"):
        triangle.with_host(Host("h1", "s2", 1))


def test_a_host_can_leave(triangle: Topology) -> None:
    less = triangle.without_host("h1")
    assert less.hosts == (H2,)
    assert less.at("s1", 3) is None
    with pytest.raises(UnknownHost):
        less.without_host("h1")


@given(topologies())
def test_both_ends_of_a_link_see_each_other(topology: Topology) -> None:
    for switch in topology.switches:
        for port, peer, peer_port in topology.neighbours(switch.id):
            assert Neighbour(peer_port, switch.id, port) in topology.neighbours(peer)
            assert topology.at(switch.id, port) == Link(switch.id, port, peer, peer_port)


@given(topologies())
def test_each_port_is_seen_once(topology: Topology) -> None:
    ports = [(s.id, port) for s in topology.switches for port in topology.switch_ports(s.id)]
    ports += [(s.id, h.port) for s in topology.switches for h in topology.hosts_at(s.id)]
    assert len(ports) == len(set(ports)) == 2 * len(topology.links) + len(topology.hosts)
    assert all(topology.at(switch, port) is not None for switch, port in ports)


@given(topologies(), st.data())
def test_a_changed_topology_equals_a_rebuilt_one(topology: Topology, data: st.DataObject) -> None:
    home = data.draw(st.sampled_from(topology.switches))
    name = data.draw(st.sampled_from(["h1", "h3", "h99"]))
    host = Host(name, home.id, 60_000)
    others = [h for h in topology.hosts if h.id != name]
    changed = topology.with_host(host)
    rebuilt = Topology.build(topology.switches, topology.links, [host, *others])
    assert changed == rebuilt
    assert [changed.hosts_at(s.id) for s in changed.switches] == [
        rebuilt.hosts_at(s.id) for s in rebuilt.switches
    ]
    assert changed.without_host(name) == Topology.build(topology.switches, topology.links, others)


@given(topologies())
def test_a_topology_survives_pickling(topology: Topology) -> None:
    again = pickle.loads(pickle.dumps(topology))  # noqa: S301
    assert again == topology
    assert [again.neighbours(s.id) for s in again.switches] == [
        topology.neighbours(s.id) for s in topology.switches
    ]
