"""Tables and groups: a leg keeps its numbers; those of legs that are gone can be freed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sdn.network.switch_limits import SwitchLimits
from sdn.network.topologies import topology
from sdn.network.topology import Host, Leg, ToHost, Topology, ToSwitch
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from sdn.tables.pipeline import OutOfGroups, OutOfTables, Pipeline, PlanName, SwitchNumbers
from sdn.tables.simulate import AmbiguousMatch, OperationRefused, SimulatedNetwork, SimulatedSwitch

LINE = topology("line:3")


def test_each_leg_of_a_switch_has_its_own_table_behind_the_admission() -> None:
    tables = Pipeline().extended(LINE)
    legs = [ToSwitch(port) for port in LINE.switch_ports("s2")] + [ToHost("h2")]
    assert [tables.table("s2", leg) for leg in legs] == [1, 2, 3]


def test_under_lpm_there_is_one_table_for_all() -> None:
    tables = Pipeline(plan="lpm").extended(LINE)
    assert {tables.table("s2", leg) for leg in tables.tables["s2"] if leg} == {1}


def test_a_new_leg_renumbers_nothing() -> None:
    before = Pipeline().extended(LINE)
    grown = LINE.without_host("h2").with_host(Host("a0", "s2", 7))
    after = before.extended(grown)
    assert after.tables["s2"][: len(before.tables["s2"])] == before.tables["s2"]
    assert after.table("s2", ToHost("a0")) == 1 + len(before.tables["s2"])
    assert after.action("s2", ToHost("h2")) == before.action("s2", ToHost("h2"))


GONE = LINE.without_host("h2")


def test_the_numbers_of_a_host_that_is_gone_are_unused_but_not_free() -> None:
    tables = Pipeline(first_group=500).extended(LINE)
    assert tables.unused(LINE) == {}
    assert tables.unused(GONE) == {"s2": SwitchNumbers(frozenset({3}), frozenset({500}))}
    other = tables.extended(GONE.with_host(Host("a0", "s2", 7)))
    assert other.table("s2", ToHost("a0")) == 4
    assert tables.extended(LINE) == tables, "it may come back"


def test_a_freed_number_goes_to_the_next_leg_and_leaves_no_gap() -> None:
    tables = Pipeline().extended(LINE)
    free = tables.freed(tables.unused(GONE))
    assert free.unused(GONE) == {}
    assert free.extended(GONE) == free
    misses = [entry for entry in free.base_entries(GONE, "s2") if entry.match is None]
    assert [(entry.table, entry.goto) for entry in misses] == [(1, 2), (2, 3), (3, 4)]
    assert not list(free.base_groups(GONE, "s2"))
    with_two = GONE.with_host(Host("a0", "s2", 7)).with_host(Host("a1", "s2", 8))
    again = free.extended(with_two)
    assert {again.table("s2", ToHost(name)) for name in ("a0", "a1")} == {3, 4}
    assert again.groups["s2"] == ("a0", "a1")
    for port in LINE.switch_ports("s2"):
        assert again.table("s2", ToSwitch(port)) == tables.table("s2", ToSwitch(port))


def test_a_host_that_comes_back_after_its_numbers_were_freed_gets_free_ones() -> None:
    tables = Pipeline().extended(LINE)
    free = tables.freed(tables.unused(GONE))
    other = free.extended(GONE.with_host(Host("a0", "s2", 7)))
    both = other.extended(LINE.with_host(Host("a0", "s2", 7)))
    assert both.table("s2", ToHost("a0")) == tables.table("s2", ToHost("h2"))
    assert both.table("s2", ToHost("h2")) == 4


def test_under_lpm_no_number_is_given_back() -> None:
    tables = Pipeline(plan="lpm").extended(LINE)
    assert tables.unused(GONE) == {}


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60))
def test_present_legs_never_share_a_number_and_never_get_another(
    changes: list[tuple[str, bool]],
) -> None:
    network, tables = LINE, Pipeline().extended(LINE)
    known: dict[Leg, int] = {}
    ports = {name: 50 + at for at, name in enumerate("abcdefgh")}
    for name, free in changes:
        there = any(host.id == name for host in network.hosts)
        network = (
            network.without_host(name)
            if there
            else network.with_host(Host(name, "s2", ports[name]))
        )
        tables = tables.extended(network)
        if free:
            tables = tables.freed(tables.unused(network))
        legs = [ToHost(host.id) for host in network.hosts_at("s2")]
        numbers: dict[Leg, int] = {leg: tables.table("s2", leg) for leg in legs}
        assert len(set(numbers.values())) == len(legs)
        assert all(numbers[leg] == known[leg] for leg in numbers.keys() & known.keys())
        groups = {str(tables.action("s2", leg)) for leg in legs}
        assert len(groups) == len(legs)
        known = numbers
    most = 2 + 1 + len(ports)
    assert len(tables.tables["s2"]) <= most or not all(free for _, free in changes)


def test_ranges_of_tables_and_groups_can_be_moved() -> None:
    tables = Pipeline(first_table=10, first_group=500).extended(LINE)
    assert tables.table("s1", ToSwitch(LINE.switch_ports("s1")[0])) == 11
    assert tables.action("s1", ToHost("h1")) == ToGroup(500)
    assert min(e.table for e in tables.base_entries(LINE, "s1")) == 10


def test_more_legs_than_tables_are_refused_with_a_way_out() -> None:
    with pytest.raises(OutOfTables, match="lpm"):
        Pipeline(table_count=4).extended(LINE)
    Pipeline(table_count=4, plan="lpm").extended(LINE)


def test_without_requests_nothing_of_ours_is_forwarded() -> None:
    network = SimulatedNetwork(LINE, Pipeline().extended(LINE))
    journey = network.send("h1", 0xFF1E << 112)
    assert not journey.hosts
    assert journey.dropped == ["s1"]


def test_a_group_follows_its_host_to_another_port() -> None:
    tables = Pipeline().extended(LINE)
    network = SimulatedNetwork(LINE, tables)
    moved = LINE.with_host(Host("h2", "s2", 40))
    network.base(moved, tables.extended(moved))
    assert [group.port for group in network.switches["s2"].groups.values()] == [40]


def entry(port: int, priority: int = 5, table: int = 0) -> FlowEntry:
    return FlowEntry(table, priority, None, (Output(port),))


def test_a_simulated_switch_refuses_what_makes_no_sense() -> None:
    switch = SimulatedSwitch("s1")
    switch.apply(FlowOp(Change.ADD, entry(1)))
    for op in [
        FlowOp(Change.ADD, entry(2)),
        FlowOp(Change.MODIFY, entry(1, priority=6)),
        FlowOp(Change.DELETE, entry(1, priority=6)),
        FlowOp(Change.DELETE, entry(2)),
    ]:
        with pytest.raises(OperationRefused):
            switch.apply(op)
    assert list(switch.entries.values()) == [entry(1)]


def test_a_simulated_switch_finds_ambiguous_entries() -> None:
    switch = SimulatedSwitch("s1")
    switch.apply(FlowOp(Change.ADD, FlowEntry(0, 5, None, (Output(1),), in_port=9)))
    switch.apply(FlowOp(Change.ADD, FlowEntry(0, 5, None, (Output(2),))))
    with pytest.raises(AmbiguousMatch):
        switch.forward(0, 9)


def test_a_packet_never_leaves_by_the_port_it_came_in() -> None:
    switch = SimulatedSwitch("s1")
    switch.apply(FlowOp(Change.ADD, FlowEntry(0, 5, None, (Output(1), Output(2)))))
    assert switch.forward(0, 1) == ([2], True)


def test_a_loop_is_noticed() -> None:
    ring = topology("ring:3")
    network = SimulatedNetwork(ring, Pipeline().extended(ring))
    for name, switch in network.switches.items():
        everywhere = tuple(Output(port) for port in ring.switch_ports(name))
        for known in list(switch.entries.values()):
            switch.apply(FlowOp(Change.DELETE, known))
        switch.apply(FlowOp(Change.ADD, FlowEntry(0, 1, None, everywhere)))
    assert network.send("h1", 0).looped


def limited(network: Topology, switch: str, **limits: Any) -> Topology:
    """The network, one switch of which has limits of its own."""
    switches = [
        replace(one, limits=SwitchLimits(**limits)) if one.id == switch else one
        for one in network.switches
    ]
    return Topology.build(switches, network.links, network.hosts)


def test_a_switch_may_have_tables_and_groups_of_its_own() -> None:
    network = limited(LINE, "s2", tables=(10, 14), groups=(3, 4))
    tables = Pipeline().extended(network)
    assert [tables.table("s2", leg) for leg in tables.tables["s2"] if leg] == [11, 12, 13]
    assert {entry.table for entry in tables.base_entries(network, "s2")} == {10, 11, 12, 13}
    assert tables.action("s2", ToHost("h2")) == ToGroup(3)
    assert [group.group for group in tables.base_groups(network, "s2")] == [3]
    assert tables.table("s1", ToHost("h1")) == Pipeline().extended(LINE).table("s1", ToHost("h1"))
    assert tables.extended(LINE) == Pipeline().extended(LINE)  # as soon as they are not given


@pytest.mark.parametrize(
    ("plan", "limits", "error", "said"),
    [
        ("legs", {"tables": (10, 13)}, OutOfTables, "switch s2 has 3 legs but tables for 2"),
        ("legs", {"tables": (10, 10)}, OutOfTables, "switch s2 has 3 legs but tables for 0"),
        ("lpm", {"tables": (10, 10)}, OutOfTables, "switch s2 may use one table, and two"),
        ("legs", {"groups": (3, 3)}, OutOfGroups, "switch s2 has or had 2 hosts, but groups for 1"),
    ],
)
def test_a_switch_that_may_use_too_few_is_named(
    plan: PlanName, limits: dict[str, Any], error: type[Exception], said: str
) -> None:
    network = limited(
        LINE.with_host(Host("a", "s2", 40)) if "groups" in limits else LINE, "s2", **limits
    )
    with pytest.raises(error, match=said):
        Pipeline(plan=plan).extended(network)
