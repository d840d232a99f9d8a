"""Operations go in as few rounds as possible without a host missing an event."""

from collections.abc import Iterable, Iterator
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dzflow.region import Region
from sdn.network.topologies import topology
from sdn.onos.rounds import RuleOp, split
from sdn.tables.flows import Change, FlowEntry, FlowOp, difference
from sdn.tables.pipeline import Pipeline
from sdn.tables.simulate import SimulatedSwitch
from tests.sdn.onos.support import SCOPE, add, delete, forward, modify, out

PIPELINE = Pipeline(plan="lpm").extended(topology("line:2"))


def steps(*ops: FlowOp) -> list[RuleOp]:
    return [RuleOp(place, op) for place, op in enumerate(ops)]


def rounds(ops: Iterable[FlowOp], *before: FlowEntry) -> list[list[int]]:
    found = split(steps(*ops), {entry.key: entry for entry in before})
    return [[step.place for step in one.ops] for one in found]


def entry(dz: str, *ports: int) -> FlowEntry:
    return forward(PIPELINE, dz, *out(*ports))


def test_additions_are_confirmed_before_anything_is_deleted() -> None:
    ops = [*add(entry("0", 1), entry("1", 2)), *delete(entry("00", 3), entry("11", 4))]
    assert rounds(ops, entry("00", 3), entry("11", 4)) == [[0, 1], [2, 3]]


def test_a_fine_rule_is_confirmed_before_a_coarser_one_loses_its_leg() -> None:
    ops = [*add(entry("00", 1, 2)), *modify(entry("0", 2))]
    assert rounds(ops, entry("0", 1, 2)) == [[0], [1]]


def test_rules_go_together_if_no_packet_misses_a_leg_meanwhile() -> None:
    ops = [*add(entry("00", 1, 2, 3)), *modify(entry("0", 1, 2))]
    assert rounds(ops, entry("0", 1)) == [[0, 1]]
    assert rounds(add(entry("000", 1, 2), entry("00", 1)), entry("0", 1)) == [[0, 1]]
    assert rounds(add(entry("000", 1, 2), entry("00", 1))) == [[0, 1]]


def test_a_fine_rule_that_is_there_already_makes_no_round() -> None:
    ops = modify(entry("00", 1, 2), entry("0", 2))
    assert rounds(ops, entry("0", 1, 2), entry("00", 1)) == [[0, 1]]


def test_a_coarse_rule_is_gone_before_packets_of_a_fine_one_can_fall_to_it() -> None:
    ops = delete(entry("0", 2), entry("00", 1, 2))
    assert rounds(ops, entry("", 1), entry("0", 2), entry("00", 1, 2)) == [[0], [1]]
    assert rounds(ops, entry("0", 2), entry("00", 1, 2)) == [[0, 1]]


def test_operations_on_one_rule_follow_each_other() -> None:
    ops = [*add(entry("0", 1)), *delete(entry("0", 1)), *add(entry("0", 2)), *modify(entry("0", 3))]
    assert rounds(ops) == [[0], [1], [2], [3]]


def test_nothing_to_do_is_no_round() -> None:
    assert split([], {}) == []


# Tables as the plan lpm defines them, over dz of up to BITS bits.

BITS = 4
Wanted = dict[str, frozenset[int]]

dzs = st.text("01", max_size=BITS)
wanted = st.dictionaries(dzs, st.frozensets(st.integers(1, 3), min_size=1), max_size=6)


def legs(want: Wanted, dz: str) -> frozenset[int]:
    """The ports that packets of a dz are wanted at."""
    return frozenset().union(*(ports for other, ports in want.items() if dz.startswith(other)))


def table(want: Wanted) -> list[FlowEntry]:
    found: dict[str, frozenset[int]] = {}
    for dz in sorted(want, key=len):
        nearest = max((other for other in found if dz.startswith(other)), key=len, default=None)
        if nearest is None or found[nearest] != legs(want, dz):
            found[dz] = legs(want, dz)
    return [entry(dz, *ports) for dz, ports in found.items()]


def states(before: Wanted, after: Wanted, random: Random) -> Iterator[SimulatedSwitch]:
    """The switch after each operation; those of one round come in any order."""
    switch = SimulatedSwitch("s")
    for one in table(before):
        switch.apply(FlowOp(Change.ADD, one))
    ops = difference({"s": table(before)}, {"s": table(after)}).get("s", [])
    for round_ in split(steps(*ops), dict(switch.entries)):
        random.shuffle(round_.ops)
        for step in round_.ops:
            switch.apply(step.op)
            yield switch


@settings(max_examples=500)
@given(wanted, wanted, st.randoms(use_true_random=False))
def test_no_packet_misses_a_leg_that_it_has_before_and_after(
    before: Wanted, after: Wanted, random: Random
) -> None:
    for switch in states(before, after, random):
        for number in range(1 << BITS):
            dz = f"{number:0{BITS}b}"
            event = SCOPE.event(Region.parse(dz).bits, 0)
            ports = set(switch.forward(event, 99)[0])
            assert legs(before, dz) & legs(after, dz) <= ports
            assert ports <= legs(before, dz) | legs(after, dz)


@given(wanted, wanted)
def test_what_more_wishes_add_goes_in_one_round(before: Wanted, more: Wanted) -> None:
    after = {dz: legs(before, dz) | legs(more, dz) for dz in before.keys() | more.keys()}
    old, new = table(before), table(after)
    ops = difference({"s": old}, {"s": new}).get("s", [])
    found = split(steps(*ops), {one.key: one for one in old})
    assert [one.deletes for one in found].count(False) <= 1
