"""The thesis's own examples, under its plan and its index."""

from collections import Counter

import pytest

from configurators.engine.engine import Ordering
from configurators.engine.partials import Request
from configurators.engine.partition_map import route
from dzflow.filters import parse_filter
from dzflow.index import build_index
from dzflow.region import Region
from dzflow.space import Space
from sdn.network.topology import Host, Link, Switch, Topology
from sdn.tables.flows import Change, FlowEntry, Output
from sdn.tables.pipeline import MATCH_PRIORITY
from tests.plant import Plant

STOCKS = Space.from_json(
    "stocks",
    {
        "attributes": [
            {"name": "SP", "type": "float", "min": 0, "max": 100},
            {"name": "SV", "type": "float", "min": 0, "max": 100},
        ],
        "index": {"kind": "zorder"},
    },
)


def test_figure_2_2_a_subscription_is_two_dzs() -> None:
    index = build_index(STOCKS)
    regions = index.regions(parse_filter(STOCKS, "SP >= 50 and SP < 75"))
    assert {str(region) for region in regions} == {"110", "100"}


def test_figure_2_2_the_event_lies_in_dz_110010() -> None:
    index = build_index(STOCKS)
    point = index.point(STOCKS.keys({"SP": 65, "SV": 55}))
    assert Region.parse("110010").holds(point)


def request(name: str, host: str, dz: str, advertised: bool = False) -> Request:
    return Request(advertised, name, host, (Region.parse(dz),))


def figure_2_3() -> Topology:
    """R1 - R3, R3 - R2, R3 - R4 - R5 - R6; P1 at R1, S1 at R2, S2 at R5, S3 at R6."""
    return Topology.build(
        [Switch(f"R{n}", n) for n in range(1, 7)],
        [
            Link("R1", 2, "R3", 1),
            Link("R2", 1, "R3", 2),
            Link("R3", 3, "R4", 1),
            Link("R4", 2, "R5", 1),
            Link("R5", 3, "R6", 1),
        ],
        [Host("P1", "R1", 1), Host("S1", "R2", 2), Host("S2", "R5", 2), Host("S3", "R6", 2)],
    )


def shown(plant: Plant, switch: str, entry: FlowEntry) -> tuple[str, str]:
    """An entry of the forwarding table as dz and ports, e.g. ("100", "2,3")."""
    assert entry.match
    length = entry.priority - MATCH_PRIORITY
    dz = f"{entry.match.address & ((1 << 96) - 1):096b}"[:length]
    groups = plant.network.switches[switch].groups
    ports = sorted(
        str(a.port) if isinstance(a, Output) else groups[a.group].host for a in entry.actions
    )
    return dz, ",".join(ports)


def tables(plant: Plant) -> dict[str, set[tuple[str, str]]]:
    forward = plant.pipeline.forward_table
    return {
        switch: {shown(plant, switch, entry) for entry in entries if entry.table == forward(switch)}
        for switch, entries in plant.network.entries(plant.pipeline).items()
    }


BEFORE_S3 = {
    "R1": {("1", "2")},
    "R2": {("1", "S1")},
    "R3": {("1", "2"), ("100", "2,3")},
    "R4": {("100", "2")},
    "R5": {("100", "S2")},
    "R6": set(),
}
WITH_S3 = {
    "R1": {("1", "2")},
    "R2": {("1", "S1")},
    "R3": {("1", "2"), ("10", "2,3")},
    "R4": {("10", "2")},
    "R5": {("10", "3"), ("100", "3,S2")},
    "R6": {("10", "S3")},
}


@pytest.mark.parametrize("ordering", ["fifo", "ordered", "net"])
def test_figures_2_3_to_2_5_tables_before_with_and_after_s3(ordering: Ordering) -> None:
    plant = Plant(figure_2_3(), "lpm", ordering=ordering)
    # The advertisement is not drawn; anything that overlaps all three will do.
    plant.add(request("p1", "P1", "1", advertised=True))
    plant.add(request("s1", "S1", "1"), request("s2", "S2", "100"))
    assert tables(plant) == BEFORE_S3
    plant.add(request("s3", "S3", "10"))
    assert tables(plant) == WITH_S3
    plant.remove("s3")
    assert tables(plant) == BEFORE_S3


def figure_6_6() -> Topology:
    """The publisher at R1; R1 - R2; one subscriber at R2, the other behind it at R3."""
    return Topology.build(
        [Switch("R1", 1), Switch("R2", 2), Switch("R3", 3)],
        [Link("R1", 2, "R2", 1), Link("R2", 2, "R3", 1)],
        [Host("P", "R1", 1), Host("A", "R2", 3), Host("B", "R3", 2)],
    )


def operations(first: Request, second: Request, ordering: Ordering) -> dict[str, Counter[Change]]:
    """What two subscriptions in this order cost at R1 and R2."""
    plant = Plant(figure_6_6(), "lpm", ordering=ordering)
    plant.add(request("p", "P", "0", advertised=True))
    engine = plant.engines["all"]
    decision = engine.decide([route(plant.map, r)["all"] for r in (first, second)], ordering)
    return {
        switch: Counter(op.change for batch in decision.rounds for op in batch.get(switch, ()))
        for switch in ("R1", "R2")
    }


COARSE, FINE = request("sub1", "A", "00"), request("sub2", "B", "000")
COARSE_FIRST = {"R1": Counter({Change.ADD: 1}), "R2": Counter({Change.ADD: 2})}
FINE_FIRST = {
    "R1": Counter({Change.ADD: 2, Change.DELETE: 1}),
    "R2": Counter({Change.ADD: 2, Change.MODIFY: 1}),
}


def test_figure_6_6_coarse_first_takes_one_operation_on_r1_and_two_on_r2() -> None:
    assert operations(COARSE, FINE, "fifo") == COARSE_FIRST


def test_figure_6_6_fine_first_takes_three_operations_on_each() -> None:
    assert operations(FINE, COARSE, "fifo") == FINE_FIRST


@pytest.mark.parametrize("ordering", ["ordered", "net"])
def test_figure_6_6_ordering_saves_them_whatever_came_first(ordering: Ordering) -> None:
    assert operations(FINE, COARSE, ordering) == COARSE_FIRST


def star() -> Topology:
    """P at s1; s1 - s2, the centre; s3 with Y and Z, s4 with V and W behind it."""
    return Topology.build(
        [Switch(f"s{n}", n) for n in range(1, 5)],
        [Link("s1", 1, "s2", 1), Link("s2", 2, "s3", 1), Link("s2", 3, "s4", 1)],
        [
            Host("P", "s1", 9),
            Host("Y", "s3", 2),
            Host("Z", "s3", 3),
            Host("V", "s4", 2),
            Host("W", "s4", 3),
        ],
    )


@pytest.mark.parametrize("kind", ["removed", "discarded"])
def test_fine_entries_are_added_before_coarse_ones_that_cover_them(kind: str) -> None:
    plant = Plant(star(), "lpm")
    plant.add(request("p", "P", "0", advertised=True))
    plant.add(request("z", "Z", "000"), request("w", "W", "00"))
    coarse = [request("y", "Y", "0"), request("v", "V", "0")]
    missed = []

    def look() -> None:
        if not {"Z", "W"} <= plant.reached("P", 0):
            missed.append(plant.operations)

    plant.watch = look
    if kind == "removed":
        plant.add(*coarse)
        plant.remove("y", "v")
    else:
        plant.decide_and_discard([route(plant.map, one) for one in coarse])
    assert missed == []
