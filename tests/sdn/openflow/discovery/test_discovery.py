"""Links: found when they carry probes both ways, lost when they no longer do."""

import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdn.network.events import FindingsChanged, LinkChanged
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, Topology
from sdn.openflow.discovery import prober
from sdn.openflow.discovery.discovery import BadKey, Discovery
from sdn.openflow.discovery.limits import BadLimits, DiscoveryLimits
from sdn.openflow.discovery.prober import PROBES_AT_HOSTS
from tests.sdn.openflow.cables import KEY, Cables, advertisement, hosts_of, links_of
from tests.strategies import topologies
from tests.support import warnings_of

LINE = topology("line:2")
(LINK,) = LINE.links
RING = topology("ring:3")
A, B = LINK.ends


def linked() -> Cables:
    """Two switches whose link is up."""
    cables = Cables(LINE)
    cables.connect()
    assert cables.rounds() == [LinkChanged(LINK, up=True)]
    return cables


@pytest.mark.parametrize("name", ["line:1", "line:5", "ring:5", "tree:3,2", "fat-tree:10"])
def test_exactly_the_links_that_there_are_are_found(name: str) -> None:
    cables = Cables(topology(name))
    cables.connect()
    found = links_of(cables.rounds())
    assert Counter(found) == Counter((link, True) for link in cables.topology.links)
    assert set(cables.discovery.links()) == set(cables.topology.links)
    assert cables.rounds(10) == []


@settings(max_examples=50)
@given(topologies(), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_exactly_the_links_of_any_network_are_found_whoever_comes_first(
    network: Topology, declared: bool, closed: bool, random: object
) -> None:
    cables = Cables(network)
    if declared:
        cables.discovery.declare(network, closed=closed)
    switches = [switch.id for switch in network.switches]
    random.shuffle(switches)  # type: ignore[attr-defined]
    for switch in switches:
        cables.connect(switch)
        cables.run(0.3)
        for host in () if declared else network.hosts_at(switch):
            cables.arrive((switch, host.port), advertisement(f"02:00:00:00:01:{host.port:02x}"))
    cables.rounds()
    assert Counter(links_of(cables.events)) == Counter((link, True) for link in network.links)
    assert cables.rounds(10) == []


def test_102_switches_are_discovered_as_soon_as_the_last_is_there() -> None:
    cables = Cables(topology("fat-tree:102"))
    for switch in cables.topology.switches:
        cables.connect(switch.id)
        cables.run(0.01)
    cables.run(0.5)
    assert set(cables.discovery.links()) == set(cables.topology.links)


def test_probes_of_a_known_network_are_spread_over_the_interval() -> None:
    cables = Cables(topology("fat-tree:102"))
    cables.connect()
    cables.rounds(3)
    cables.sent.clear()
    cables.rounds(1)
    ports = {end for _, end in cables.sent}
    assert len(ports) == len(cables.sent)
    tenths = Counter(int((cables.now - at) / cables.interval * 10) for at, _ in cables.sent)
    assert max(tenths.values()) < 3 * len(ports) / 10


def test_probes_are_rate_limited_and_no_port_is_forgotten() -> None:
    cables = Cables(topology("ring:50"), DiscoveryLimits(probe_rate=20, probe_burst=5))
    cables.connect()
    assert len(cables.discovery.probes(cables.now)) == 5
    assert cables.discovery.probes(cables.now) == []
    cables.run(40)
    times = [at for at, _ in cables.sent]
    for start in times:
        assert sum(start <= at < start + 1 for at in times) <= 26
    assert set(cables.discovery.links()) == set(cables.topology.links)
    # Rounds last longer than the interval then, but no link is lost for that.
    assert all(up for _, up in links_of(cables.events))


def test_a_link_that_carries_probes_one_way_only_is_none() -> None:
    cables = Cables(LINE)
    cables.one_way = {A}
    cables.connect()
    assert cables.rounds(10) == []
    cables.one_way.clear()
    assert cables.rounds(2) == [LinkChanged(LINK, up=True)]
    cables.one_way = {B}
    assert cables.rounds(5) == [LinkChanged(LINK, up=False)]


def test_what_arrived_long_ago_does_not_count_for_a_link() -> None:
    cables = Cables(LINE)
    cables.one_way = {A}
    cables.connect()
    cables.rounds()
    cables.one_way = {A, B}
    cables.rounds()
    cables.one_way = {B}
    assert cables.rounds() == []


def test_a_link_that_is_cut_times_out_and_comes_back() -> None:
    cables = linked()
    cables.cut.add(LINK)
    assert cables.rounds(1) == []
    assert cables.rounds(4) == [LinkChanged(LINK, up=False)]
    assert cables.discovery.links() == ()
    assert cables.rounds(5) == []
    cables.cut.clear()
    assert cables.rounds(2) == [LinkChanged(LINK, up=True)]


def test_a_single_probe_that_is_lost_takes_no_link_down() -> None:
    cables = linked()
    for _ in range(5):
        cables.cut.add(LINK)
        cables.rounds(1.9)
        cables.cut.clear()
        cables.rounds(1.1)
    assert links_of(cables.events) == [(LINK, True)]


def test_a_clock_that_jumps_takes_no_link_down() -> None:
    cables = linked()
    cables.now += 1000
    assert cables.rounds(10) == []


@pytest.mark.parametrize("end", [A, B])
def test_a_port_that_goes_down_takes_its_link_along_at_once(end: tuple[str, int]) -> None:
    cables = linked()
    assert cables.port(end, up=False) == [LinkChanged(LINK, up=False)]
    assert cables.port(end, up=False) == []
    cables.cut.add(LINK)
    assert cables.rounds(5) == []
    cables.cut.clear()
    cables.port(end, up=True)
    assert cables.run(1) == [LinkChanged(LINK, up=True)]


def test_what_a_port_sent_before_it_went_down_no_longer_counts() -> None:
    cables = Cables(LINE)
    cables.connect()
    sent = {(switch, port): frame for switch, port, frame in cables.discovery.probes(cables.now)}
    assert cables.arrive(B, sent[A]) == []
    cables.port(B, up=False)
    cables.port(B, up=True)
    assert cables.arrive(A, sent[B]) == []
    assert cables.discovery.counters.lldp_replayed == 1
    assert cables.run(1) == [LinkChanged(LINK, up=True)]


def test_what_arrived_at_a_switch_before_it_was_away_no_longer_counts() -> None:
    cables = Cables(LINE)
    cables.connect()
    sent = {(switch, port): frame for switch, port, frame in cables.discovery.probes(cables.now)}
    assert cables.arrive(B, sent[A]) == []
    cables.discovery.switch_down("s2")
    cables.connect("s2")
    assert cables.arrive(A, sent[B]) == []
    cables.one_way = {A}
    assert cables.run(1) == []
    cables.one_way.clear()
    assert cables.rounds(1) == [LinkChanged(LINK, up=True)]


def test_a_port_that_flaps_is_not_probed_each_time() -> None:
    cables = Cables(LINE)
    cables.connect("s1")
    for _ in range(100):
        cables.port(A, up=False)
        cables.port(A, up=True)
        cables.run(0.01)
    assert sum(end == A for _, end in cables.sent) <= 5


def test_a_port_that_is_new_is_probed() -> None:
    cables = Cables(LINE)
    cables.events += cables.discovery.switch_up("s1", [A[1]])
    cables.events += cables.discovery.switch_up("s2", [])
    assert cables.rounds() == []
    cables.port(B, up=True)
    assert cables.run(1) == [LinkChanged(LINK, up=True)]


def test_links_of_a_switch_that_is_not_connected_stay_as_they_are() -> None:
    cables = linked()
    cables.discovery.switch_down("s2")
    assert cables.rounds(10) == []
    assert cables.discovery.links() == (LINK,)
    assert cables.discovery.confirmed_links() == ()
    cables.connect("s2")
    assert cables.discovery.confirmed_links() == (), "it is not known yet whether it is still there"
    assert cables.rounds(10) == [FindingsChanged()]
    assert cables.discovery.confirmed_links() == (LINK,)


def test_a_switch_that_goes_away_while_probes_are_missed_keeps_its_links() -> None:
    cables = linked()
    cables.cut.add(LINK)
    cables.rounds(2.5)
    cables.discovery.switch_down("s1")
    assert cables.rounds(10) == []


def test_a_link_that_vanished_while_its_switch_was_away_is_found_missing() -> None:
    cables = linked()
    cables.discovery.switch_down("s2")
    cables.cut.add(LINK)
    cables.rounds(10)
    cables.connect("s2")
    assert cables.rounds(5) == [LinkChanged(LINK, up=False)]


def test_a_port_that_is_down_when_its_switch_comes_back_has_no_link() -> None:
    cables = linked()
    cables.discovery.switch_down("s2")
    assert cables.discovery.switch_up("s2", [99]) == [LinkChanged(LINK, up=False)]


def test_a_port_next_to_a_switch_that_is_away_can_take_the_link_down() -> None:
    cables = linked()
    cables.discovery.switch_down("s2")
    assert cables.port(A, up=False) == [LinkChanged(LINK, up=False)]


def test_links_of_busy_switches_do_not_time_out_and_are_not_probed() -> None:
    cables = linked()
    cables.busy = {"s2"}
    cables.cut.add(LINK)
    cables.run(0)
    cables.sent.clear()
    assert cables.rounds(10) == []
    # s1 has its host's port, and that of the link would be probed for nothing.
    assert {end for _, end in cables.sent} == {("s1", 2)}
    cables.busy.clear()
    assert cables.rounds(6) == [LinkChanged(LINK, up=False)]


def test_a_switch_that_becomes_busy_while_probes_are_missed_keeps_its_links() -> None:
    cables = linked()
    cables.cut.add(LINK)
    cables.rounds(2.5)
    cables.busy = {"s1"}
    assert cables.rounds(10) == []


def test_a_switch_that_is_removed_is_forgotten_with_its_links() -> None:
    cables = Cables(RING)
    cables.discovery.declare_parts((), RING.links[:1])
    cables.connect()
    cables.rounds()
    gone = cables.discovery.switch_removed("s1")
    assert set(links_of(gone)) == {(link, False) for link in RING.links if "s1" in (link.a, link.b)}
    cables.discovery.validate()
    cables.sent.clear()
    cables.rounds(10)
    assert not any(switch == "s1" for _, (switch, _) in cables.sent)
    assert len(cables.discovery.links()) == 1
    cables.connect("s1")
    cables.rounds()
    assert set(cables.discovery.links()) == set(RING.links)
    for switch in RING.switches:
        cables.discovery.switch_removed(switch.id)
    assert cables.discovery.wake_at(cables.now) is None


def test_a_cable_that_was_moved_unnoticed_is_found_once_the_old_link_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = Topology.build(RING.switches, [Link("s1", 1, "s2", 1), Link("s2", 2, "s3", 2)], [])
    after = Topology.build(RING.switches, [Link("s1", 1, "s3", 1), Link("s2", 2, "s3", 2)], [])
    cables = Cables(before)
    for switch in ("s1", "s2", "s3"):
        cables.discovery.switch_up(switch, [1, 2])
    cables.rounds()
    cables.topology = after
    with caplog.at_level(logging.WARNING):
        found = cables.rounds(6)
    assert links_of(found) == [(Link("s1", 1, "s2", 1), False), (Link("s1", 1, "s3", 1), True)]
    assert cables.discovery.counters.lldp_conflict > 0
    assert "s1:1 - s2:1 is a link already, which stays" in caplog.text
    # One for each end, not one for each probe.
    assert len(warnings_of(caplog, prober.__name__)) == 2


def test_a_cable_from_a_switch_to_itself_is_no_link() -> None:
    discovery = Discovery(KEY)
    discovery.switch_up("s1", [1, 2])
    for _, port, frame in discovery.probes(0):
        assert discovery.packet_in("s1", 3 - port, frame, 0) == []
    assert discovery.counters.lldp_own_switch == 2


def test_declared_hosts_and_links_are_taken_at_their_word() -> None:
    cables = Cables(RING)
    cables.discovery.declare(RING)
    cables.connect()
    assert set(links_of(cables.rounds())) == {(link, True) for link in RING.links}
    hosts = {(host.switch, host.port) for host in RING.hosts}
    assert not hosts & {end for _, end in cables.sent}


def test_a_declared_link_that_is_not_there_is_told_to_be_down() -> None:
    cables = Cables(LINE)
    cables.discovery.declare(LINE)
    cables.cut.add(LINK)
    cables.connect("s1")
    assert cables.rounds(10) == []  # discovery cannot know yet
    cables.connect("s2")
    assert cables.rounds(5) == [LinkChanged(LINK, up=False)]
    assert cables.rounds(5) == []
    cables.cut.clear()
    assert cables.rounds(2) == [LinkChanged(LINK, up=True)]


def test_a_link_that_is_declared_late_gets_its_time_to_be_found() -> None:
    cables = Cables(LINE)
    cables.cut.add(LINK)
    cables.connect()
    cables.rounds(10)
    assert cables.discovery.declare(LINE) == []
    assert cables.rounds(2.5) == []
    cables.cut.clear()
    assert cables.rounds(2) == [LinkChanged(LINK, up=True)]


def test_a_declared_link_whose_port_is_down_is_told_to_be_down_at_once() -> None:
    discovery = Discovery(KEY)
    discovery.declare(LINE)
    assert discovery.switch_up("s1", [A[1] + 7]) == [LinkChanged(LINK, up=False)]
    discovery = Discovery(KEY)
    discovery.switch_up("s1", [A[1] + 7])
    assert discovery.declare(LINE) == [LinkChanged(LINK, up=False)]


def test_a_port_of_a_declared_link_leads_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    cables = Cables(RING)
    declared = Link("s1", 1, "s3", 2)
    assert declared not in RING.links
    cables.discovery.declare_parts((), [declared])
    cables.connect()
    with caplog.at_level(logging.WARNING):
        found = links_of(cables.rounds(6))
    assert set(found) == {(Link("s2", 2, "s3", 1), True), (declared, False)}
    assert "s1:1 - s3:2 is a link already" in caplog.text


def test_what_is_closed_has_no_other_links_than_declared_ones() -> None:
    cables = Cables(RING)
    cables.discovery.declare_parts((), RING.links[:1], closed=True)
    cables.connect()
    assert links_of(cables.rounds()) == [(RING.links[0], True)]
    assert {end for _, end in cables.sent} == set(RING.links[0].ends)


def test_another_declaration_takes_back_what_no_longer_fits() -> None:
    cables = Cables(RING)
    cables.connect()
    cables.rounds()
    kept, moved, taken = RING.links
    declared = [kept, Link(moved.a, moved.a_port, "s9", 1)]
    host = Host("h9", taken.a, taken.a_port)
    gone = cables.discovery.declare_parts([host], declared)
    assert sorted(links_of(gone), key=str) == [(link, False) for link in (moved, taken)]
    cables.discovery.validate()
    assert cables.rounds(6) == []
    assert cables.discovery.links() == (kept,)
    # A link that was declared and is up stays when it is no longer declared.
    assert cables.discovery.declare_parts(()) == []
    cables.rounds()
    assert set(cables.discovery.links()) == set(RING.links)
    assert set(links_of(cables.discovery.declare_parts((), closed=True))) == {
        (link, False) for link in RING.links
    }


def test_a_port_where_a_host_was_learned_is_seldom_probed() -> None:
    cables = Cables(LINE)
    cables.connect()
    port = ("s1", LINE.hosts_at("s1")[0].port)
    cables.rounds()
    assert cables.heard[port]
    assert len(hosts_of(cables.arrive(port, advertisement()))) == 1
    cables.rounds(PROBES_AT_HOSTS)
    cables.heard.clear()
    cables.rounds(30)
    assert 2 <= len(cables.heard[port]) <= 3


def test_the_same_calls_give_the_same_probes_and_events() -> None:
    def course() -> tuple[object, ...]:
        cables = Cables(topology("fat-tree:10"))
        cables.discovery.declare_parts(cables.topology.hosts[:3])
        cables.connect()
        cables.rounds()
        cables.cut.add(cables.topology.links[3])
        cables.rounds(6)
        cables.arrive(("s7", 3), advertisement())
        return cables.sent, cables.heard, cables.events, cables.discovery.counters

    assert course() == course()


def test_nothing_is_to_be_done_where_nothing_is_known() -> None:
    discovery = Discovery(KEY)
    assert discovery.wake_at(0) is None
    assert discovery.probes(0) == []
    assert discovery.tick(0) == []
    assert discovery.switch_removed("s1") == []
    discovery.switch_down("s1")


def test_ports_that_no_topology_may_have_are_ignored() -> None:
    discovery = Discovery(KEY)
    discovery.switch_up("s1", [0, 65280, 0xFFFFFFFE])
    discovery.port_changed("s1", 65280, True, 0)
    discovery.port_changed("s2", 1, True, 0)  # which is not connected
    assert discovery.probes(0) == []


@pytest.mark.parametrize("key", [b"", bytes(15), bytes(65)])
def test_a_key_must_have_the_right_length(key: bytes) -> None:
    with pytest.raises(BadKey, match="take 16 to 64 random ones"):
        Discovery(key)


@pytest.mark.parametrize(
    "fields", [{"interval": 0.0}, {"missed": 0}, {"port_rate": -1}, {"move_every": float("nan")}]
)
def test_limits_must_allow_something(fields: dict[str, float]) -> None:
    with pytest.raises(BadLimits, match="must be greater than 0"):
        DiscoveryLimits(**fields)  # type: ignore[arg-type]
