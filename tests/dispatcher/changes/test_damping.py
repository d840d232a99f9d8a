"""What counts as lost: not what is away for a moment, and not what nobody can know."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from configurators.state.network import first_network
from configurators.store.model import Lost, NetworkDoc
from dispatcher.changes.damping import Damper, Observation, Patience
from sdn.network.topologies import topology
from sdn.network.topology import Link, Switch

DOC = first_network(topology("ring:5"), "legs", 1)
ALL = frozenset(switch.id for switch in DOC.switches)
LINK = DOC.links[0]
PATIENCE = Patience(down_after=3, absent_after=30, back_after=2, longest=600)


class Clock:
    """A damper, and the time."""

    def __init__(self, doc: NetworkDoc = DOC) -> None:
        self.now = 100.0
        self.doc = doc
        self.damper = Damper(PATIENCE)

    def see(self, down: frozenset[str] = frozenset(), *ports: tuple[str, int]) -> None:
        self.damper.observe(self.doc, Observation(ALL - down, down, frozenset(ports)), self.now)

    def nobody_tells(self) -> None:
        self.damper.observe(self.doc, Observation(frozenset(), frozenset(), frozenset()), self.now)

    def after(self, seconds: float) -> Lost:
        self.now += seconds
        return self.damper.lost(self.doc, self.now)


def test_a_switch_is_lost_when_it_has_been_away_for_a_while() -> None:
    clock = Clock()
    clock.see()
    clock.see(frozenset(["s2"]))
    assert clock.after(2.9) == Lost()
    assert not clock.damper.calm
    assert clock.after(0.1) == Lost(("s2",))
    clock.see()
    assert clock.after(1.9) == Lost(("s2",))
    assert clock.after(0.1) == Lost()
    assert clock.damper.calm


def test_one_that_is_back_in_time_was_never_lost() -> None:
    clock = Clock()
    for _ in range(5):
        clock.see()
        assert clock.after(1) == Lost()
        clock.see(frozenset(["s2"]))
        assert clock.after(2) == Lost()


def test_a_link_is_lost_as_soon_as_a_port_of_it_is_down() -> None:
    for port in LINK.ends:
        clock = Clock()
        clock.see()
        clock.see(frozenset(), port)
        assert clock.after(0) == Lost(links=(LINK,))


def test_a_link_is_lost_when_it_has_carried_no_probes_for_a_while() -> None:
    clock = Clock()
    clock.see()
    silent = frozenset([LINK.ends[0]])
    clock.damper.observe(DOC, Observation(ALL, frozenset(), frozenset(), silent), clock.now)
    assert clock.after(2.9) == Lost()
    assert clock.after(0.1) == Lost(links=(LINK,))
    clock.see()
    assert clock.after(2) == Lost()


def test_a_lost_link_is_back_when_it_was_found_where_links_are_looked_for() -> None:
    clock = Clock()

    def see(found: frozenset[Link] | None, *ports: tuple[str, int]) -> None:
        observed = Observation(ALL, frozenset(), frozenset(ports), found=found)
        clock.damper.observe(clock.doc, observed, clock.now)

    nothing: frozenset[Link] = frozenset()
    see(nothing)
    assert clock.after(100) == Lost(), "it was not looked for yet"
    see(nothing, LINK.ends[0])
    assert clock.after(0) == Lost(links=(LINK,))
    see(nothing)
    assert clock.after(100) == Lost(links=(LINK,)), "something else may be plugged in"
    see(frozenset([LINK]))
    assert clock.after(1.9) == Lost(links=(LINK,))
    assert clock.after(0.1) == Lost()
    # One that cannot be found is back with its ports.
    clock.doc = replace(DOC, unprobed=(LINK,))
    see(nothing, LINK.ends[0])
    assert clock.after(0) == Lost(links=(LINK,))
    see(nothing)
    assert clock.after(4) == Lost()


def test_a_silent_link_is_not_lost_while_one_of_its_switches_is_away() -> None:
    clock = Clock()
    clock.see()
    away = frozenset([LINK.b])
    silent = frozenset([LINK.ends[0]])
    clock.damper.observe(DOC, Observation(ALL - away, away, frozenset(), silent), clock.now)
    assert clock.after(2.9) == Lost()
    # It comes back, and it takes a moment until its probes are heard.
    clock.damper.observe(DOC, Observation(ALL, frozenset(), frozenset(), silent), clock.now)
    assert clock.after(2.9) == Lost()
    clock.see()
    assert clock.after(10) == Lost()


def test_ports_of_hosts_are_nobodys_links() -> None:
    clock = Clock()
    host = DOC.hosts[0]
    clock.see(frozenset(), (host.switch, host.port))
    assert clock.after(100) == Lost()


def test_what_comes_and_goes_is_left_alone_for_longer_and_longer() -> None:
    clock = Clock()
    clock.see()
    changes = 0
    lost = Lost()
    for _ in range(3600):  # for an hour, a second down and a second up
        for ports in ([LINK.ends[0]], []):
            clock.see(frozenset(), *ports)
            now = clock.after(1)
            changes += now != lost
            lost = now
    assert changes == 1
    changes = 0
    for _ in range(120):  # for two hours, as long as is needed to be taken for well, at first
        for ports, seconds in (([LINK.ends[0]], 1), ([], 29)):
            clock.see(frozenset(), *ports)
            for _ in range(seconds):
                now = clock.after(1)
                changes += now != lost
                lost = now
    assert changes < 20
    clock.see()
    assert clock.after(601) == Lost()


@pytest.mark.parametrize("down", [0.1, 0.5, 1.5, 2.9])
def test_a_link_that_flaps_20_times_a_minute_is_taken_out_of_use_and_stays_out(
    down: float,
) -> None:
    clock = Clock()
    clock.see()
    seen = []
    for _ in range(20):
        for ports, seconds in ([LINK.ends[0]], down), ([], 3 - down):
            clock.see(frozenset(), *ports)
            seen += [clock.after(seconds / 10).links for _ in range(10)]
    changes = sum(one != other for one, other in pairwise(seen))
    assert changes <= 2, "it comes back once at the most, and is lost again"
    assert seen[-1] == (LINK,)


def test_switches_that_are_declared_and_never_come_say_nothing_about_the_others() -> None:
    more = [Switch(f"new{number}", 100 + number) for number in range(10)]
    lost = Lost(tuple(switch.id for switch in more))
    clock = Clock(replace(DOC, switches=(*DOC.switches, *more), lost=lost, discovered=True))
    absent = frozenset(lost.switches)
    clock.see(absent)
    assert clock.after(60) == lost
    clock.see(absent | {"s2"})
    assert clock.after(2.9) == lost
    assert set(clock.after(0.1).switches) == absent | {"s2"}


def test_what_was_well_for_long_is_trusted_again() -> None:
    clock = Clock()
    for _ in range(20):
        clock.see()
        assert clock.after(700) == Lost()
        clock.see(frozenset(), LINK.ends[0])
        assert clock.after(0) == Lost(links=(LINK,))
    clock.see()
    assert clock.after(2) == Lost()


def test_switches_that_were_not_seen_yet_have_more_time() -> None:
    clock = Clock()
    clock.see(frozenset(["s2"]))
    assert clock.after(29) == Lost()
    assert clock.after(1) == Lost(("s2",))
    # The same after a southbound process was restarted: it has to be found by the switches.
    clock = Clock()
    clock.see()
    clock.nobody_tells()
    assert clock.after(1000) == Lost()
    clock.see(frozenset(["s2"]))
    assert clock.after(29) == Lost()


def test_if_most_switches_are_away_it_is_rather_we_who_are() -> None:
    clock = Clock()
    clock.see()
    clock.see(frozenset(["s1", "s2", "s3"]))
    assert clock.after(29) == Lost()
    assert clock.after(1) == Lost(("s1", "s2", "s3"))


def test_those_that_come_back_last_after_all_were_away_have_time_to() -> None:
    clock = Clock()
    clock.see()
    clock.see(ALL)
    assert clock.after(5) == Lost()
    clock.see(frozenset(["s1", "s4"]))
    assert clock.after(2.9) == Lost()
    clock.see(frozenset(["s4"]))
    assert clock.after(0.1) == Lost(("s4",))


def test_being_away_with_most_others_does_not_help_for_ever() -> None:
    clock = Clock()
    clock.see()
    clock.see(ALL)
    assert clock.after(29) == Lost()
    clock.see(frozenset(["s4"]))
    assert clock.after(1) == Lost(("s4",))


def test_what_is_lost_stays_lost_while_nobody_knows_better() -> None:
    stored = first_network(topology("ring:5"), "legs", 1)
    clock = Clock()
    clock.doc = NetworkDoc(
        *(stored.switches, stored.links, stored.hosts, stored.pipeline, stored.trees),
        lost=Lost(("s2",), (LINK,)),
    )
    clock.nobody_tells()
    assert clock.after(1000) == clock.doc.lost
    clock.see(frozenset(["s2"]))
    assert clock.after(1000) == clock.doc.lost, "the ports of a switch that is away are not known"
    clock.see()
    assert clock.after(2) == Lost()


@pytest.mark.parametrize(("away", "known"), [(1, True), (601, False)])
def test_what_was_removed_from_the_network_is_forgotten_after_a_while(
    away: float, known: bool
) -> None:
    network = topology("line:3")
    clock = Clock(first_network(network, "legs", 1))
    clock.see()
    clock.see(frozenset({"s3"}), ("s2", 2))
    assert clock.after(3) == Lost(("s3",), network.links[1:])
    whole = clock.doc
    clock.doc = replace(whole, switches=network.switches[:2], links=network.links[:1])
    clock.see()
    assert clock.after(away) == Lost()
    assert clock.damper.calm
    clock.see()
    clock.doc = whole
    clock.see()
    # What comes back soon stays out of use for a while, also if it was removed in between.
    assert clock.after(0) == (Lost(("s3",), network.links[1:]) if known else Lost())
