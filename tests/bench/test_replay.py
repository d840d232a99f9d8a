"""Replays by hand, and what holds for every replay under every map."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.http.schema.plans import MapIn, NodeIn, PlanIn
from bench import engine
from bench.replay.hosts import NoHosts, place_hosts
from bench.replay.maps import MapReplay
from bench.replay.model import Operations, ReplayReport, Unusable
from bench.replay.replayer import Replayer, ReplayOptions, replay
from bench.replay.spaces import (
    BadPlanFile,
    ReplaySpace,
    load_spaces,
    planned_owners,
    read_plan,
    under_plan,
)
from configurators.engine.engine import Engine, Ordering
from configurators.engine.partition_map import Node, PartitionMap, route
from configurators.engine.validation import validate
from configurators.state.spaces import new_space
from configurators.state.trace_spaces import decode_footer, encode_footer
from dzflow.address import Scope
from dzflow.cli import bench as command
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.tables.flows import Change, difference
from sdn.tables.flows import count as count_operations
from sdn.tables.pipeline import Pipeline, PlanName
from sdn.tables.simulate import SimulatedNetwork
from spark.workload.file import BadWorkload, write_workload
from spark.workload.model import LeftOut, WorkloadAbout, WorkloadRequest
from tests.oracle import receivers
from tests.partition_maps import draw_map
from tests.recut import recut
from tests.strategies import COMBINATIONS, INDEXES, events

SCHEMA = {
    "attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10}],
    "index": {"kind": "zorder"},  # a half of the space is one region
}
FOOTER = encode_footer([new_space("stocks", 31, SCHEMA, "legs", 1)]).entries
SPACES = load_spaces(decode_footer({k.encode(): v.encode() for k, v in FOOTER.items()}))
HIGH, LOW = '{"price":{"gte":512}}', '{"price":{"lt":512}}'
CUT = PlanIn("stocks", 0, 0, MapIn("legs", NodeIn(0)))  # above, below, and across 512


def ask(kind: str, id: str, filter: str = "{}", host: str = "h1") -> WorkloadRequest:
    return WorkloadRequest(0, kind, "stocks", host, id, filter)


def ticks() -> Iterator[float]:
    """Readings of a clock that moves by one second whenever it is read."""
    return (float(tick) for tick in count())


def replayed(
    requests: Sequence[WorkloadRequest],
    slice_size: int = 1,
    plan: PlanIn | None = None,
    owners: Mapping[str, str] | None = None,
    network: str = "line:2",
) -> ReplayReport:
    hosts = tuple(sorted({request.host for request in requests}))
    about = WorkloadAbout({"any": len(requests)}, hosts=hosts, owners=dict(owners or {}))
    clock = ticks().__next__
    options = ReplayOptions(network, slice_size, plan)
    return replay("traces", requests, about, SPACES, options, clock=clock)


LIFE = [
    ask("advertise", "a1f-1"),
    ask("subscribe", "s1f-1", HIGH, "h2"),
    ask("update", "s1f-1", LOW, "h2"),
    ask("unsubscribe", "s1f-1", LOW, "h2"),
]


def test_operations_and_entries_are_those_of_the_engine() -> None:
    found = replayed(LIFE, owners={"1f.0/all": "c1"}).traced
    # The publisher is let in at s1. The subscription is an entry at s1 (to s2) and one at s2 (to
    # h2); its change adds two and then deletes two; its end deletes two.
    assert found.operations == Operations(adds=5, modifies=0, deletes=4)
    assert (found.entries, found.most_entries) == (1, 5)
    assert (found.partials, found.slices) == (5, 5)  # a change is two partials
    (partition,) = found.partitions
    assert (partition.name, partition.space, partition.configurator) == ("1f.0/all", "stocks", "c1")
    assert (partition.work_ms, partition.entries) == (5_000.0, 1)
    assert [(c.name, c.partitions, c.operations) for c in found.configurators] == [("c1", 1, 9)]


def test_a_slice_is_decided_as_a_whole() -> None:
    found = replayed(LIFE[:1] + [ask("subscribe", f"s1f-{n}", HIGH, "h2") for n in range(4)], 3)
    assert found.slice_size == 3
    assert (found.traced.partials, found.traced.slices) == (5, 2)
    # What follows for the same record waits for the next slice: here, for the end of the replay.
    whole = replayed(LIFE, 100).traced
    assert (whole.partials, whole.slices) == (5, 4)
    assert whole.operations == Operations(adds=5, modifies=0, deletes=4)


def test_a_record_that_changes_all_the_time_does_not_pile_up() -> None:
    changes = [ask("update", "s1f-1", (HIGH, LOW)[n % 2], "h2") for n in range(1, 60)]
    found = replayed([*LIFE[:2], *changes], 20).traced
    assert found.slices > 59
    assert found.entries == 3


def test_a_plan_is_replayed_beside_the_traced_map() -> None:
    requests = [
        ask("advertise", "a1f-1"),
        ask("subscribe", "s1f-1", HIGH, "h2"),
        ask("subscribe", "s1f-2", LOW, "h2"),
        ask("subscribe", "s1f-3", "{}", "h2"),
    ]
    plan = PlanIn("stocks", 0, 0, CUT.map, {"0-0": "c2"})
    found = replayed(requests, plan=plan, owners={"1f.0/all": "c1"})
    assert found.planned
    # Under one map, the last one covers the others: they are deleted. Under the plan it cannot.
    assert found.traced.operations == Operations(adds=7, modifies=0, deletes=4)
    assert found.planned.operations == Operations(adds=7, modifies=0, deletes=0)
    assert (found.traced.entries, found.planned.entries) == (3, 7)
    # Entries that are the same under both maps stay.
    assert found.change == Operations(adds=4, modifies=0, deletes=0)
    by_name = {each.name: each for each in found.planned.partitions}
    owners = {name: each.configurator for name, each in by_name.items()}
    assert owners == {"1f.0/0-0": "c2", "1f.0/0-1": "c1", "1f.0/0-x": "c1"}
    # The advertisement is told to all three.
    assert {name: each.partials for name, each in by_name.items()} == dict.fromkeys(by_name, 2)
    assert found.planned.partition_imbalance == 1.0
    assert found.planned.configurator_imbalance == pytest.approx(4 / 3)
    assert found.notices == ()


def test_what_cannot_be_replayed_is_counted() -> None:
    requests = [
        WorkloadRequest(0, "subscribe", "gone", "h1", "s2-1", "{}"),
        ask("subscribe", "s1f-1", '{"size":{"eq":3}}'),
        ask("update", "s1f-1", "{}"),
        ask("unsubscribe", "s1f-1"),
        ask("subscribe", "s1f-2", '"price > 3"'),
        ask("subscribe", "s1f-2", "{}"),
        ask("subscribe", "s1f-3", "no JSON"),
    ]
    found = replayed(requests)
    assert found.unusable == Unusable(unknown_spaces=1, unfit_filters=2, unmatched=3)
    assert found.requests == {"subscribe": 1}
    assert replayed([]).traced.entries == 0


def test_notices_say_what_limits_a_replay() -> None:
    plan = PlanIn("stocks", 0, 4, CUT.map)
    found = replayed([ask("subscribe", "s1f-1", host="h9")], plan=plan, owners={"x": "c1"})
    places, number = found.notices
    assert "line:2 lacks 1 of the 1 hosts (h9)" in places
    assert "made for map number 4 of stocks, and the traces end with number 0" in number
    about = WorkloadAbout({"update": 1}, LeftOut(), first_seen=1, moved=2)
    first, moved, owners = replay("t", [], about, SPACES, ReplayOptions("line:2")).notices
    assert "1 changes are of records that began before" in first
    assert "2 requests came before an earlier request" in moved
    assert "no owners" in owners
    with pytest.raises(BadWorkload, match="lacks the host 'h1'"):
        replay("t", [ask("subscribe", "s1f-1")], about, SPACES, ReplayOptions("line:2"))


def test_hosts_that_a_topology_lacks_get_free_places_first() -> None:
    line = topology("line:4")
    assert place_hosts(["h1", "h4"], line) == {"h1": "h1", "h4": "h4"}
    assert place_hosts(["b10", "b9", "h2"], line) == {"h2": "h2", "b9": "h1", "b10": "h3"}
    crowd = place_hosts([f"b{n}" for n in range(7)], line)
    assert list(crowd.values()) == ["h1", "h2", "h3", "h4", "h1", "h2", "h3"]
    empty = Topology.build(line.switches, line.links, [])
    assert place_hosts([], empty) == {}
    with pytest.raises(NoHosts, match="--topology"):
        place_hosts(["h1"], empty)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (PlanIn("other", 0, 0, CUT.map), "for the space 'other'; the traces describe .* stocks"),
        (PlanIn("stocks", 1, 0, CUT.map), "for version 1 .* the traces end with version 0"),
        (PlanIn("stocks", 0, 0, MapIn("lpm")), "the network runs under legs"),
        (PlanIn("stocks", 0, 0, CUT.map, {"7-0": "c"}), "the map has no partition '7-0'"),
    ],
)
def test_a_plan_that_does_not_fit_the_traces_is_refused(plan: PlanIn, text: str) -> None:
    with pytest.raises(BadPlanFile, match=text):
        under_plan(SPACES, plan)


def test_a_file_without_a_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(BadPlanFile, match="No such file"):
        read_plan(path)
    for text in ("{", '{"space": "stocks"}', '{"space": 3}'):
        path.write_text(text)
        with pytest.raises(BadPlanFile, match="is no plan"):
            read_plan(path)
    path.write_text(
        json.dumps({"space": "stocks", "version": 0, "number": 0, "map": {"plan": "lpm"}})
    )
    assert read_plan(path).map == MapIn("lpm")


def test_new_partitions_go_to_the_owners_of_those_that_are_gone() -> None:
    def cut(root: Node | None) -> ReplaySpace:
        stocks = SPACES["stocks"]
        return ReplaySpace("stocks", stocks.scope, stocks.index, PartitionMap("legs", root), 0)

    owners = {"1f.0/0-0": "c1", "1f.0/0-1": "c2", "1f.0/0-x": "c3", "2.0/all": "c4"}
    deeper = Node(0, zero=Node(1), one=Node(1))
    deeper_leaves = [f"0-{above}.1-{below}" for above in "01" for below in "01x"]
    plan = PlanIn("stocks", 0, 0, MapIn("legs"), {"0-1.1-x": "c9"})
    found = planned_owners(owners, cut(Node(0)), cut(deeper), plan)
    shown = [found.pop(f"1f.0/{leaf}") for leaf in deeper_leaves]
    assert shown == ["c1", "c2", "c1", "c2", "c1", "c9"]
    assert found == {"2.0/all": "c4", "1f.0/0-x": "c3"}


# What holds for every workload under every map

RANGES = st.tuples(st.integers(0, 15), st.integers(0, 15)).map(sorted)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "x": RANGES.map(lambda pair: {"between": pair}),
        "colour": st.sampled_from(["red", "green"]).map(lambda colour: {"eq": colour}),
    },
).map(json.dumps)
HOSTS = ["h1", "h2", "h3"]
STEPS = st.lists(
    st.tuples(st.sampled_from("bbbue"), st.booleans(), st.sampled_from(HOSTS), FILTERS),
    max_size=25,
)


def workload(steps: Sequence[tuple[str, bool, str, str]], random: Random) -> list[WorkloadRequest]:
    """Requests that can be: changes and ends are of records that are active."""
    found: list[WorkloadRequest] = []
    active: dict[str, tuple[bool, str]] = {}
    for number, (what, advertised, host, text) in enumerate(steps):
        if what == "b" or not active:
            id = f"{'a' if advertised else 's'}7-{number}"
            active[id] = advertised, host
            kind = "advertise" if advertised else "subscribe"
        else:
            id = random.choice(sorted(active))
            advertised, host = active[id]
            kind = "update" if what == "u" else "unadvertise" if advertised else "unsubscribe"
            if what == "e":
                del active[id]
        found.append(WorkloadRequest(number, kind, "small", host, id, text))
    return found


@settings(max_examples=60)
@given(
    combination=st.sampled_from(COMBINATIONS),
    ordering=st.sampled_from(["fifo", "ordered", "net"]),
    steps=STEPS,
    slice_size=st.integers(1, 6),
    seed=st.integers(0, 1_000),
    sent=st.lists(st.tuples(st.sampled_from(HOSTS), events()), min_size=1, max_size=4),
)
def test_every_map_delivers_the_same_and_holds_what_a_rebuild_holds(
    combination: tuple[PlanName, str],
    ordering: Ordering,
    steps: Sequence[tuple[str, bool, str, str]],
    slice_size: int,
    seed: int,
    sent: Sequence[tuple[str, dict[str, Any]]],
) -> None:
    plan, kind = combination
    index, random, network = INDEXES[kind], Random(seed), topology("line:3")
    maps = []
    for partition_map in (PartitionMap(plan), draw_map(random, plan, range(8))):
        space = ReplaySpace("small", Scope(7), index, partition_map, 0)
        maps.append(MapReplay({"small": space}, network, slice_size, ticks().__next__, ordering))
    replayer = Replayer(maps[0].spaces, maps, {host: host for host in HOSTS})
    requests = workload(steps, random)
    replayer.replay(requests)
    assert replayer.unusable == Unusable()
    assert sum(replayer.requests.values()) == len(requests)
    active = replayer.active("small")
    for each in maps:
        engines = {leaf: one.engine for leaf, one in each.partitions["small"].items()}
        for leaf, one in engines.items():
            validate(one)
            again = Engine(one.plan)
            routed = [route(each.spaces["small"].map, request) for request in active]
            again.load(shares[leaf] for shares in routed if leaf in shares)
            assert _entry_sets(again) == _entry_sets(one)
        figures = each.figures({})
        assert figures.entries == sum(one.count() for one in engines.values())
        assert figures.entries == figures.operations.adds - figures.operations.deletes
        assert figures.most_entries >= figures.entries
        pipeline = Pipeline(plan=plan).extended(network)
        switches = SimulatedNetwork(network, pipeline)
        for one in engines.values():
            switches.apply([difference({}, one.entries())])
        for host, event in sent:
            point = index.point(index.space.keys(event))
            journey = switches.send(host, Scope(7).event(point, 0))
            assert set(journey.hosts) == receivers(active, host, point)
            assert set(journey.hosts.values()) <= {1}
    # To go over to the other map takes as many operations as the service would send.
    engines = {leaf: one.engine for leaf, one in maps[0].partitions["small"].items()}
    some = next(iter(engines.values())).plan
    batch = recut(some, engines, active, maps[1].spaces["small"].map).batch
    counts = count_operations([batch])
    expected = Operations(counts[Change.ADD], counts[Change.MODIFY], counts[Change.DELETE])
    assert maps[0].change_to(maps[1]) == expected


def _entry_sets(one: Engine) -> dict[str, set[object]]:
    return {switch: set(entries) for switch, entries in one.entries().items()}


# The benchmark


def test_the_engine_benchmark_takes_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "workload.parquet"
    requests = [ask("advertise", "a1f-0")]
    requests += [ask("subscribe", f"s1f-{n}", HIGH, "h99") for n in range(20)]
    requests += [ask("update", f"s1f-{n}", LOW, "h99") for n in range(10)]
    requests += [ask("unsubscribe", f"s1f-{n}", LOW, "h99") for n in range(20)]
    about = WorkloadAbout({"any": len(requests)}, hosts=("h1", "h99"))
    write_workload(path, requests, about, FOOTER)
    steps: list[str] = []
    report = engine.run(True, steps.append, path)
    rows = {row["ordering"]: row for row in report.rows}
    assert {row["requests"] for row in report.rows} == {51}
    assert {row["entries"] for row in report.rows} == {1}
    assert rows["net"]["operations"] <= rows["fifo"]["operations"]
    assert report.ratios.keys() == {"requests_per_s", "ordered_saving", "net_saving"}
    assert len(steps) == 3
    with pytest.raises(command.UnknownBench, match="only engine takes a workload"):
        command.bench("control", workload=path)
