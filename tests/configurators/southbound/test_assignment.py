"""Which southbound process is responsible for each switch, by what the processes publish."""

from collections import Counter

from configurators.southbound.assignment import assign
from configurators.southbound.rendezvous import spread
from configurators.store.model import Connections

SWITCHES = tuple(f"s{n:02}" for n in range(40))
BOTH = ("b1", "b2")
EVEN = spread(SWITCHES, BOTH)
ALL = Connections(SWITCHES)


def without(*gone: str) -> Connections:
    return Connections(tuple(switch for switch in SWITCHES if switch not in gone))


def one_of(process: str) -> str:
    """A switch that belongs to this one of two processes."""
    return next(switch for switch, owner in EVEN.items() if owner == process)


def test_switches_that_are_connected_to_all_or_to_none_are_shared_evenly() -> None:
    assert assign(SWITCHES, BOTH, {}) == EVEN
    assert assign(SWITCHES, BOTH, {"b1": ALL, "b2": ALL}) == EVEN
    assert Counter(EVEN.values()) == {"b1": 20, "b2": 20}


def test_a_process_that_no_switch_is_connected_to_gets_none() -> None:
    found = assign(SWITCHES, BOTH, {"b1": ALL})
    assert set(found.values()) == {"b1"}


def test_a_switch_belongs_to_a_process_that_it_is_connected_to_and_the_others_stay() -> None:
    moved = one_of("b2")
    found = assign(SWITCHES, BOTH, {"b1": ALL, "b2": without(moved)})
    assert found == EVEN | {moved: "b1"}


def test_connections_to_processes_that_are_not_registered_do_not_count() -> None:
    found = assign(SWITCHES, ["b1"], {"b1": Connections(), "b2": ALL})
    assert set(found.values()) == {"b1"}


def test_a_switch_that_is_away_stays_with_the_process_that_it_was_connected_to() -> None:
    away = one_of("b2")
    expecting = Connections(without(away).connected, away=(away,))
    assert assign(SWITCHES, BOTH, {"b1": expecting, "b2": without(away)}) == EVEN | {away: "b1"}
    # If both say so, as they do for a moment, it is the one by the even share.
    assert assign(SWITCHES, BOTH, {"b1": expecting, "b2": expecting}) == EVEN


def test_among_several_that_have_a_switch_all_processes_choose_the_same() -> None:
    three = ("b1", "b2", "b3")
    preferred = spread(SWITCHES, three)
    switch = next(s for s, owner in preferred.items() if owner == "b3")
    stored = {"b1": ALL, "b2": ALL, "b3": without(switch)}
    found = assign(SWITCHES, three, stored)
    assert found == assign(SWITCHES[::-1], three[::-1], stored)
    assert found[switch] in BOTH
    assert {s: p for s, p in found.items() if s != switch} == {
        s: p for s, p in preferred.items() if s != switch
    }


def test_a_process_that_leaves_keeps_only_what_no_other_has() -> None:
    only = one_of("b2")
    found = assign(SWITCHES, BOTH, {"b1": without(only), "b2": ALL}, wanted=1)
    assert found == dict.fromkeys(SWITCHES, "b1") | {only: "b2"}
    assert set(assign(SWITCHES, BOTH, {"b1": ALL, "b2": ALL}, wanted=1).values()) == {"b1"}
    assert set(assign(SWITCHES, BOTH, {"b2": Connections(away=(only,))}, 1).values()) == {"b1"}
    assert assign(SWITCHES, ["b2"], {}, wanted=1) == dict.fromkeys(SWITCHES, "b2"), "the only one"


def test_a_process_that_is_about_to_end_keeps_only_what_no_other_has() -> None:
    only = one_of("b2")
    leaving = Connections(SWITCHES, leaving=True)
    found = assign(SWITCHES, BOTH, {"b1": without(only), "b2": leaving})
    assert found == dict.fromkeys(SWITCHES, "b1") | {only: "b2"}
    assert assign(SWITCHES, BOTH, {"b1": leaving, "b2": leaving}) == EVEN, "all of them end"


def test_switches_that_are_not_part_of_the_network_are_ignored() -> None:
    assert assign(["s1"], ["b1"], {"b1": Connections(("s1", "s9"), away=("s8",))}) == {"s1": "b1"}


def test_without_a_process_no_switch_has_one() -> None:
    assert assign(SWITCHES, [], {}) == {}
