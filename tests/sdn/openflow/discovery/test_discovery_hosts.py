"""Hosts: learned from neighbour discovery at ports that lead to no switch, within bounds."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sdn.network.events import HostSeen
from sdn.network.findings import SeenHost
from sdn.network.topologies import topology
from sdn.network.topology import Host, Topology
from sdn.openflow.discovery.frames import IPV6_TYPE, asker_at
from sdn.openflow.discovery.hosts import End
from sdn.openflow.discovery.limits import Budget, DiscoveryLimits
from tests.sdn.openflow.cables import (
    ADDRESS,
    MAC,
    Cables,
    address_check,
    advertisement,
    hosts_of,
    port_mac,
    solicitation,
)

NETWORK = topology("line:3")
PORTS: list[End] = [(host.switch, host.port) for host in NETWORK.hosts]
ID = "host-020000000011"
SEEN = Host(ID, *PORTS[0], mac=MAC, ipv6=ADDRESS)
LOCAL = "fe80::11"


def mac(number: int) -> str:
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def ready(limits: DiscoveryLimits | None = None) -> Cables:
    cables = Cables(NETWORK, limits)
    cables.connect()
    cables.rounds()
    return cables


@pytest.mark.parametrize("frame", [advertisement(), solicitation(), address_check()])
def test_a_host_is_learned_from_what_it_says(frame: bytes) -> None:
    cables = ready()
    assert cables.arrive(PORTS[0], frame) == [HostSeen(SEEN)]
    assert cables.discovery.hosts() == (SEEN,)
    assert cables.arrive(PORTS[0], frame) == []  # which is nothing new


def test_a_learned_host_fits_into_the_topology() -> None:
    cables = ready()
    (host,) = hosts_of(cables.arrive(PORTS[0], advertisement()))
    bare = Topology.build(NETWORK.switches, NETWORK.links, [])
    assert bare.with_host(host).host(ID) == SEEN


def test_the_first_address_stays_unless_a_better_one_is_known() -> None:
    cables = ready()
    cables.arrive(PORTS[0], advertisement(address=LOCAL))
    (host,) = hosts_of(cables.arrive(PORTS[0], advertisement()))
    assert host == SEEN
    assert cables.arrive(PORTS[0], advertisement(address=LOCAL)) == []
    assert cables.arrive(PORTS[0], advertisement(address="fd00::12")) == []
    assert cables.discovery.hosts() == (SEEN,)


def test_a_host_that_moves_is_seen_at_its_new_port() -> None:
    cables = ready()
    cables.arrive(PORTS[0], advertisement())
    for port in (PORTS[1], PORTS[2], PORTS[0]):
        (host,) = hosts_of(cables.arrive(port, advertisement(address=LOCAL)))
        assert host == Host(ID, *port, mac=MAC, ipv6=ADDRESS)
        assert cables.discovery.hosts() == (host,)
        cables.run(1)
    assert cables.discovery.counters.host_moves == 3


def test_two_hosts_with_one_mac_do_not_make_it_move_all_the_time() -> None:
    cables = ready()
    for _ in range(100):
        cables.arrive(PORTS[0], advertisement())
        cables.arrive(PORTS[1], advertisement())
        cables.run(0.1)
    assert len(hosts_of(cables.events)) <= 12
    assert cables.discovery.counters.host_moves_held > 0


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("pause", [0.0, 2.0])
def test_what_switches_forward_before_their_links_are_found_does_not_hide_them(
    pause: float, declared: bool
) -> None:
    # With `other_traffic = "normal"`, what a host says comes out at all switches.
    cables = Cables(NETWORK)
    if declared:
        cables.discovery.declare_parts([Host("h1", *PORTS[0], mac=MAC)])
    cables.connect()
    (first, second), (third, fourth) = (link.ends for link in NETWORK.links)
    for end in (PORTS[0], second, fourth, PORTS[0], second, fourth, first, third):
        cables.arrive(end, solicitation())
        cables.now += pause
    cables.rounds(1)
    assert set(cables.discovery.links()) == set(NETWORK.links)
    cables.arrive(PORTS[0], solicitation())
    assert [(one.switch, one.port) for one in cables.discovery.hosts()] == PORTS[: not declared]


@pytest.mark.parametrize("declared_mac", [MAC, mac(1), None])
@pytest.mark.parametrize("first", [0, 1])
def test_a_link_comes_up_again_though_a_declared_host_is_heard_through_it(
    first: int, declared_mac: str | None
) -> None:
    # Its switch forwards what it says as soon as the port is up, before probes can arrive.
    cables = Cables(NETWORK)
    cables.discovery.declare_parts([Host("h1", *PORTS[0], mac=declared_mac)])
    cables.connect()
    cables.rounds()
    link = NETWORK.links[0]
    (end,) = (end for end in link.ends if end[0] == "s2")
    cables.port(end, up=False)
    cables.now += 60
    cables.port(end, up=True)
    for at in (PORTS[0], end) if first == 0 else (end, PORTS[0]):
        cables.arrive(at, solicitation())
    cables.rounds(2)
    assert link in cables.discovery.links()


def test_strangers_at_the_port_of_a_declared_host_are_remembered_within_bounds() -> None:
    cables = Cables(NETWORK)
    for mine in (None, mac(300)):
        cables.discovery.declare_parts([Host("h1", *PORTS[0], mac=mine)])
        cables.connect()
        for number in range(200):
            cables.arrive(PORTS[0], advertisement(mac(number)))
            cables.now += 0.1
            if number % 20 == 0:
                cables.port(PORTS[0], up=False)
                cables.port(PORTS[0], up=True)
    assert cables.discovery.hosts() == ()


def test_a_host_that_has_been_at_one_port_only_for_a_while_keeps_it() -> None:
    cables = Cables(NETWORK)
    link = NETWORK.links[0]
    cables.cut.add(link)
    cables.connect()
    cables.arrive(PORTS[0], solicitation())
    cables.run(2)
    cables.arrive(link.ends[0], solicitation())
    cables.run(29)
    cables.arrive(link.ends[0], solicitation())
    cables.run(2)
    cables.arrive(link.ends[0], solicitation())
    cables.cut.clear()
    cables.rounds(5)
    assert link not in cables.discovery.links()


@pytest.mark.parametrize("ends", [1, 2])
@pytest.mark.parametrize("late", [0, 60])
def test_a_switch_that_speaks_itself_is_no_host(ends: int, late: float) -> None:
    # Linux announces an address of its own on each port.
    link = NETWORK.links[0]
    cables = Cables(NETWORK)
    cables.connect("s1")
    one, other = link.ends
    cables.arrive(one, address_check(port_mac(other).hex(":")))
    cables.run(late)
    cables.connect("s2", "s3")
    if ends == 2:
        cables.arrive(other, address_check(port_mac(one).hex(":")))
    cables.rounds(1)
    assert set(cables.discovery.links()) == set(NETWORK.links)
    assert cables.discovery.hosts() == ()
    assert cables.discovery.crossed(cables.now) == {}


def test_a_switch_that_speaks_on_a_cable_that_was_plugged_in_unnoticed_is_no_host() -> None:
    cables = Cables(NETWORK)
    link = NETWORK.links[0]
    one, other = link.ends
    cables.cut.add(link)
    cables.connect()
    cables.arrive(one, address_check(port_mac(other).hex(":")))
    cables.arrive(other, address_check(port_mac(one).hex(":")))
    cables.rounds(30)
    cables.cut.clear()
    cables.rounds(11)
    assert set(cables.discovery.links()) == set(NETWORK.links)


@pytest.mark.parametrize("said", [advertisement(), solicitation(), address_check()])
def test_what_a_switch_forwards_before_it_is_connected_does_not_hide_its_links(said: bytes) -> None:
    cables = Cables(NETWORK)
    cables.connect("s1")
    cables.arrive(NETWORK.links[0].ends[0], said)
    cables.connect("s2", "s3")
    cables.rounds()
    assert set(cables.discovery.links()) == set(NETWORK.links)
    assert cables.discovery.hosts() == ()


def test_a_host_keeps_its_port_when_a_switch_connects_again() -> None:
    cables = Cables(NETWORK)
    link = NETWORK.links[0]
    cables.cut.add(link)
    cables.connect()
    cables.arrive(link.ends[0], advertisement())
    cables.discovery.switch_down("s2")
    cables.connect("s2")
    cables.cut.clear()
    cables.rounds(30)
    assert link not in cables.discovery.links()


def test_what_a_switch_says_by_its_bridge_is_no_host() -> None:
    cables = Cables(NETWORK)
    link = NETWORK.links[0]
    bridge = bytes.fromhex("02ee00020000")
    cables.cut.add(link)
    cables.connect()
    cables.discovery.switch_up("s2", cables.ports("s2"), {0xFFFFFFFE: bridge})
    assert cables.arrive(link.ends[0], address_check(bridge.hex(":"))) == []
    cables.cut.clear()
    cables.rounds(11)
    assert set(cables.discovery.links()) == set(NETWORK.links)


def test_hosts_beside_a_switch_that_speaks_itself_keep_their_port() -> None:
    cables = Cables(NETWORK)
    link = NETWORK.links[0]
    one, other = link.ends
    cables.cut.add(link)
    cables.connect()
    cables.arrive(one, address_check(port_mac(other).hex(":")))
    cables.arrive(one, advertisement())
    cables.cut.clear()
    cables.rounds(30)
    assert link not in cables.discovery.links()
    assert [host.mac for host in cables.discovery.hosts()] == [MAC]


def test_the_port_that_a_host_has_left_may_lead_to_a_switch_again() -> None:
    cables = Cables(NETWORK)
    link = NETWORK.links[0]
    cables.cut.add(link)
    cables.connect()
    cables.run(1)
    cables.arrive(link.ends[0], advertisement())
    cables.cut.clear()
    cables.rounds(5)
    assert link not in cables.discovery.links()
    cables.arrive(PORTS[1], advertisement())
    cables.rounds(11)
    assert set(cables.discovery.links()) == set(NETWORK.links)


@pytest.mark.parametrize("how", ["the port goes down", "the switch comes back without it"])
def test_a_port_that_was_down_is_known_no_longer(how: str) -> None:
    cables = ready()
    cables.arrive(PORTS[0], advertisement())
    if how == "the port goes down":
        cables.port(PORTS[0], up=False)
    else:
        cables.discovery.switch_down("s1")
        assert cables.discovery.hosts() == (SEEN,)
        cables.discovery.switch_up("s1", NETWORK.switch_ports("s1"))
    assert cables.discovery.hosts() == ()
    cables.port(PORTS[0], up=True)
    cables.heard.clear()
    cables.run(1)
    assert PORTS[0] in cables.heard
    assert cables.arrive(PORTS[0], advertisement()) == [HostSeen(SEEN)]


def test_hosts_behind_a_port_that_leads_to_a_switch_are_not_learned() -> None:
    cables = ready()
    for link in NETWORK.links:
        for end in link.ends:
            assert cables.arrive(end, advertisement()) == []
    assert cables.discovery.counters.neighbour_at_link == 4


def test_hosts_behind_a_port_of_a_declared_link_are_never_learned() -> None:
    cables = Cables(NETWORK)
    end = NETWORK.links[0].ends[0]
    cables.connect("s1")
    cables.arrive(end, advertisement())
    cables.discovery.declare(NETWORK)
    assert cables.discovery.hosts() == ()
    assert cables.arrive(end, advertisement()) == []
    cables.connect()
    cables.rounds()
    assert set(cables.discovery.links()) == set(NETWORK.links)


def test_nothing_is_reported_of_declared_hosts() -> None:
    cables = ready()
    cables.arrive(PORTS[0], advertisement())
    cables.arrive(PORTS[1], advertisement(mac(1)))
    cables.arrive(PORTS[2], advertisement(mac(2)))
    declared = [Host("h1", *PORTS[0]), Host("h2", "s9", 1, mac=mac(1).upper())]
    cables.discovery.declare_parts(declared)
    cables.discovery.validate()
    assert [host.mac for host in cables.discovery.hosts()] == [mac(2)]
    assert cables.arrive(PORTS[0], advertisement()) == []  # at the port of one
    assert cables.arrive(PORTS[2], advertisement(mac(1))) == []  # with the MAC of one
    assert cables.discovery.counters.neighbour_declared == 2
    # What is not declared any more is learned again.
    cables.discovery.declare_parts(())
    assert cables.arrive(PORTS[0], advertisement()) == [HostSeen(SEEN)]


def test_a_host_that_was_declared_elsewhere_once_is_where_it_was_learned() -> None:
    cables = ready()
    cables.discovery.declare_parts([Host("h1", "s9", 1, mac=MAC)])
    assert cables.arrive(PORTS[1], advertisement()) == []
    cables.discovery.declare_parts(())
    assert cables.arrive(PORTS[0], advertisement()) == [HostSeen(SEEN)]
    cables.port(PORTS[1], up=False)
    assert cables.discovery.hosts() == (SEEN,)


def test_a_declared_host_that_is_heard_elsewhere_is_not_learned_but_reported() -> None:
    cables = ready()
    cables.discovery.declare_parts([Host("h2", "s9", 1, mac=mac(1))])
    cables.arrive(PORTS[0], advertisement(mac(1)))
    heard = cables.now
    cables.run(1)
    cables.arrive(PORTS[0], advertisement(mac(1), "fd00::99"))  # nothing new
    cables.arrive(PORTS[1], advertisement())
    assert cables.discovery.hosts() == (replace(SEEN, port=PORTS[1][1], switch=PORTS[1][0]),)
    stray = Host(f"host-{mac(1).replace(':', '')}", *PORTS[0], mac=mac(1), ipv6=ADDRESS)
    assert [one.host for one in cables.discovery.seen_hosts()] == [
        stray,
        *cables.discovery.hosts(),
    ]
    assert cables.discovery.seen_hosts()[0].since == heard
    cables.arrive(PORTS[2], advertisement(mac(1)))
    [stray, _] = [one.host for one in cables.discovery.seen_hosts()]
    assert (stray.switch, stray.port) == PORTS[2]
    cables.port(PORTS[2], up=False)
    assert [one.host.mac for one in cables.discovery.seen_hosts()] == [MAC]
    cables.arrive(PORTS[2], advertisement(mac(1)))
    cables.discovery.declare_parts(())
    assert [one.host.mac for one in cables.discovery.seen_hosts()] == [MAC]


def test_a_host_that_is_declared_elsewhere_after_it_was_learned_is_reported() -> None:
    cables = ready()
    cables.arrive(PORTS[0], advertisement())
    cables.discovery.declare_parts([Host("h1", "s9", 1, mac=MAC)])
    assert cables.discovery.hosts() == ()
    assert [one.host for one in cables.discovery.seen_hosts()] == [SEEN]
    cables.discovery.declare_parts([Host("h1", *PORTS[0], mac=MAC)])
    assert cables.discovery.seen_hosts() == ()


def test_a_host_is_where_it_is_since_it_has_moved_there() -> None:
    cables = ready()
    cables.arrive(PORTS[0], advertisement(address=LOCAL))
    first = cables.now
    cables.run(5)
    cables.arrive(PORTS[0], advertisement())  # with a better address
    assert cables.discovery.seen_hosts() == (SeenHost(SEEN, first),)
    cables.run(5)
    cables.arrive(PORTS[1], advertisement())
    [moved] = cables.discovery.seen_hosts()
    assert moved.since == cables.now


def asked(cables: Cables, end: End) -> int:
    return sum(frame[12:14] == IPV6_TYPE for frame in cables.heard.get(end, ()))


def test_hosts_that_say_nothing_are_asked_at_ports_that_lead_to_no_switch() -> None:
    cables = Cables(NETWORK, ask_hosts=True)
    cables.connect()
    cables.run(1)
    assert not any(asked(cables, end) for end in PORTS)  # a link would show itself first
    cables.rounds(5)
    assert [asked(cables, end) for end in PORTS] == [3, 3, 3]
    assert set(cables.discovery.links()) == set(NETWORK.links)
    assert cables.discovery.counters.neighbour_at_link == 0  # links are not asked
    cables.arrive(PORTS[0], advertisement())
    cables.discovery.declare_parts([Host("h2", *PORTS[1])])
    cables.rounds(20)
    # More and more seldom, and only where no host is known.
    assert [asked(cables, end) for end in PORTS] == [3, 3, 5]


def answer(end: End, mac: str = MAC) -> bytes:
    return solicitation(mac, target=str(IPv6Address(asker_at(*end))))


def test_an_answer_counts_at_the_port_that_was_asked_only() -> None:
    cables = Cables(NETWORK, ask_hosts=True)
    cables.connect()
    cables.rounds()
    # Switches that forward other traffic send the answer to all ports.
    for end in PORTS:
        cables.arrive(end, answer(PORTS[1]))
    [host] = cables.discovery.hosts()
    assert (host.switch, host.port) == PORTS[1]
    assert cables.discovery.counters.neighbour_elsewhere == 2


def test_a_port_where_hosts_have_only_answered_can_still_be_found_to_be_a_link() -> None:
    cables = Cables(NETWORK, ask_hosts=True)
    end = NETWORK.links[0].ends[0]
    cables.connect("s1")
    cables.rounds()
    # The other switch is not connected yet; it has passed the question on, or answered it itself.
    assert asked(cables, end) == 0  # the cable carries it
    assert hosts_of(cables.arrive(end, answer(end)))
    assert cables.discovery.hosts()
    cables.connect()
    cables.rounds()
    assert set(cables.discovery.links()) == set(NETWORK.links)
    assert cables.discovery.hosts() == ()


def test_a_host_that_speaks_by_itself_after_an_answer_keeps_its_port() -> None:
    cables = Cables(NETWORK, ask_hosts=True)
    end = NETWORK.links[0].ends[0]
    cables.cut.add(NETWORK.links[0])
    cables.connect()
    cables.rounds()
    cables.arrive(end, answer(end))
    cables.arrive(end, solicitation())
    cables.arrive(end, answer(end))
    cables.cut.clear()
    cables.rounds(5)
    assert NETWORK.links[0] not in cables.discovery.links()


def test_a_port_that_comes_up_again_is_not_asked_before_a_link_would_have_been_found() -> None:
    cables = Cables(NETWORK, ask_hosts=True)
    cables.connect()
    cables.rounds(9.4)
    cables.port(PORTS[0], up=False)
    before = asked(cables, PORTS[0])
    cables.port(PORTS[0], up=True)
    cables.run(1)
    assert asked(cables, PORTS[0]) == before
    cables.rounds(1)
    assert asked(cables, PORTS[0]) == before + 1


def test_nobody_is_asked_if_no_hosts_are_to_be_learned() -> None:
    cables = ready()
    cables.rounds(30)
    assert not any(asked(cables, end) for end in PORTS)


def test_a_host_cannot_take_the_id_of_a_declared_one() -> None:
    cables = ready()
    cables.discovery.declare_parts([Host(ID, *PORTS[1])])
    assert cables.arrive(PORTS[0], advertisement()) == []


def test_the_number_of_hosts_at_a_port_is_bounded() -> None:
    cables = ready(DiscoveryLimits(hosts_per_port=3, port_burst=1000))
    for number in range(100):
        cables.arrive(PORTS[0], advertisement(mac(number)))
    assert len(cables.discovery.hosts()) == 3
    assert cables.discovery.counters.hosts_refused == 97
    # Also for those that move, and for declared ones.
    cables.arrive(PORTS[1], advertisement(mac(200)))
    assert cables.arrive(PORTS[0], advertisement(mac(200))) == []
    cables.discovery.declare_parts([Host("h1", "s9", 1, mac=mac(300))])
    assert cables.arrive(PORTS[0], advertisement(mac(300))) == []
    assert len(cables.discovery.hosts()) == 4  # three there, and the one that did not move
    # Others are not affected, and neither are those that are known.
    cables.run(1)
    assert len(hosts_of(cables.arrive(PORTS[1], advertisement(mac(0))))) == 1
    assert len(hosts_of(cables.arrive(PORTS[0], advertisement(mac(200))))) == 1


def test_the_number_of_all_hosts_is_bounded() -> None:
    cables = ready(DiscoveryLimits(hosts=4, hosts_per_port=100, port_burst=1000))
    for number in range(60):
        cables.arrive(PORTS[number % 3], advertisement(mac(number)))
    assert len(cables.discovery.hosts()) == 4
    assert cables.discovery.counters.hosts_refused == 56
    cables.port(PORTS[0], up=False)
    assert len(hosts_of(cables.arrive(PORTS[1], advertisement(mac(99))))) == 1


def test_a_port_is_heard_so_often_a_second_and_no_more() -> None:
    cables = ready(DiscoveryLimits(port_rate=10, port_burst=5))
    for _ in range(10_000):
        cables.discovery.packet_in(*PORTS[0], b"garbage", cables.now)
    assert cables.discovery.counters.over_port_rate == 10_000 - 5
    assert cables.arrive(PORTS[1], advertisement())  # others have their own rate
    cables.run(1)
    for _ in range(10_000):
        cables.discovery.packet_in(*PORTS[0], b"garbage", cables.now)
    assert cables.discovery.counters.other_packets == 10
    cables.run(0.1)
    assert cables.arrive(PORTS[0], advertisement(mac(1)))


def test_all_ports_together_are_heard_so_often_a_second_and_no_more() -> None:
    cables = ready(DiscoveryLimits(total_rate=10, total_burst=6))
    for port in PORTS:
        for _ in range(20):
            cables.discovery.packet_in(*port, b"garbage", cables.now)
    assert cables.discovery.counters.over_total_rate == 60 - 6


@given(
    st.floats(0.5, 1e4),
    st.integers(1, 50),
    st.lists(st.floats(0, 10), min_size=1, max_size=200),
    st.floats(0, 1e7),
)
def test_a_budget_allows_its_rate_and_one_burst(
    rate: float, burst: int, pauses: list[float], start: float
) -> None:
    budget, now, taken = Budget(rate, burst), start, 0
    for pause in pauses:
        now += pause
        taken += budget.take(now)
        budget.take(start - 5)  # a clock that goes back gives nothing
    assert taken <= burst + (now - start) * rate + 1e-3
    while budget.take(now):
        pass
    later = now + budget.wait(now)
    assert budget.take(later)
