"""Our policy, case by case."""

import pytest
from msgspec.structs import replace

from monitor.balancing.forecast import ForecastOptions
from monitor.balancing.policy import Situation
from monitor.balancing.predictive import MoveCosts, PredictiveOptions, PredictivePolicy
from monitor.balancing.restraint import RestraintOptions
from monitor.load.samples import PartitionSample
from tests.monitor.balancing.situations import moved, part, situation

OPTIONS = PredictiveOptions(
    imbalance=0.2,
    floor=0.05,
    horizon=120.0,
    costs=MoveCosts(move=0.1, record=60e-6, entry=0.0),
    forecast=ForecastOptions(window=20.0),
    restraint=RestraintOptions(rest=300.0, moves_per_minute=10),
)


def moves(given: Situation, options: PredictiveOptions = OPTIONS) -> list[tuple[str, str, str]]:
    found = PredictivePolicy(options).propose(given)
    return [(move.partition, move.source, move.target) for move in found]


def uneven(_: int) -> list[PartitionSample]:
    """c1 needs 0.9 processors, c2 needs 0.1."""
    return [
        part("a", "c1", arrived=100, work=0.4),
        part("b", "c1", arrived=100, work=0.3),
        part("c", "c1", arrived=100, work=0.2),
        part("d", "c2", arrived=100, work=0.1),
    ]


def test_the_move_that_pays_most_is_made() -> None:
    # With a at c2, both need 0.5; with b there, 0.6 and 0.4.
    assert moves(situation(uneven)) == [("a", "c1", "c2")]


def test_an_imbalance_below_the_share_is_tolerated() -> None:
    assert moves(situation(uneven), replace(OPTIONS, imbalance=0.9)) == []


def test_an_imbalance_of_little_work_is_tolerated() -> None:
    def little(age: int) -> list[PartitionSample]:
        return [replace(each, decided_s=each.decided_s / 10) for each in uneven(age)]

    assert moves(situation(little)) == []
    assert moves(situation(little), replace(OPTIONS, floor=0.01)) == [("a", "c1", "c2")]


def test_a_move_that_does_not_pay_within_the_horizon_is_not_made() -> None:
    def heavy(age: int) -> list[PartitionSample]:
        return [replace(each, active=1_000_000) for each in uneven(age)]

    assert moves(situation(heavy)) == []  # 60 s, for 0.4 processors in 120 s
    assert moves(situation(heavy), replace(OPTIONS, horizon=300.0)) == [("a", "c1", "c2")]


def test_a_move_that_helps_a_little_less_is_preferred_if_it_is_cheaper() -> None:
    def priced(age: int) -> list[PartitionSample]:
        dear, *others = uneven(age)
        return [replace(dear, active=300_000), *others]  # 18 s; a saves 12 s more than b

    assert moves(situation(priced)) == [("b", "c1", "c2")]


def test_nothing_moves_if_every_move_makes_another_configurator_as_busy() -> None:
    def one(_: int) -> list[PartitionSample]:
        return [part("a", "c1", arrived=100, work=0.9), part("b", "c2", arrived=10, work=0.1)]

    assert moves(situation(one)) == []


def test_a_peak_shorter_than_half_a_window_is_tolerated() -> None:
    def peak(age: int) -> list[PartitionSample]:
        busy = uneven(age)
        return busy if age < 9 else [replace(each, arrived=1, done=1, decided_s=0) for each in busy]

    assert moves(situation(peak)) == []


def test_nothing_moves_before_the_window_is_full() -> None:
    assert moves(situation(uneven, seconds=15)) == []
    assert moves(situation(uneven, seconds=21)) == [("a", "c1", "c2")]


def test_an_imbalance_that_the_last_minutes_do_not_confirm_is_tolerated() -> None:
    def swung(age: int) -> list[PartitionSample]:
        loads = uneven(age)
        if age < 60:
            return loads
        # Before that, c2 needed 1.7 processors, and c1 nothing.
        return [
            replace(each, arrived=0 if each.configurator == "c1" else 1700, done=0, decided_s=0.0)
            for each in loads
        ]

    assert moves(situation(swung, seconds=300)) == []

    def overloaded(age: int) -> list[PartitionSample]:
        return [replace(each, arrived=each.arrived * 2) for each in swung(age)]

    # But a configurator that cannot do its work gets help at once.
    assert moves(situation(overloaded, seconds=300))[0] == ("a", "c1", "c2")


def test_a_backlog_is_work() -> None:
    def waiting(_: int) -> list[PartitionSample]:
        return [
            part("a", "c1", arrived=10, work=0.02, queued=4000),
            part("b", "c1", arrived=10, work=0.02, queued=4000),
            part("c", "c2", arrived=10, work=0.02),
        ]

    assert moves(situation(waiting)) == [("a", "c1", "c2")]


def test_what_waits_for_a_switch_is_no_work_and_does_not_move() -> None:
    def stuck(_: int) -> list[PartitionSample]:
        return [
            part("a", "c1", arrived=10, work=0.02, queued=4000, undefined=1),
            part("b", "c1", arrived=10, work=0.02),
            part("c", "c2", arrived=10, work=0.02),
        ]

    assert moves(situation(stuck)) == []

    def both(age: int) -> list[PartitionSample]:
        return [replace(each, undefined=1) for each in uneven(age)]

    assert moves(situation(both)) == []


def test_a_partition_that_has_moved_rests_and_longer_each_time() -> None:
    given = situation(uneven)
    assert moves(replace(given, past=[moved("a", 299)])) == [("b", "c1", "c2")]
    assert moves(replace(given, past=[moved("a", 301)])) == [("a", "c1", "c2")]
    assert moves(replace(given, past=[moved("a", 3000), moved("a", 1199)])) == [("b", "c1", "c2")]
    assert moves(replace(given, past=[moved("a", 3000), moved("a", 1201)])) == [("a", "c1", "c2")]
    # Moves of more than an hour ago are forgotten.
    assert moves(replace(given, past=[moved("a", 3601), moved("a", 301)])) == [("a", "c1", "c2")]


def test_a_move_that_failed_is_not_tried_again_at_once() -> None:
    past = [moved("a", 10, done=False)]
    assert moves(replace(situation(uneven), past=past)) == [("b", "c1", "c2")]


def test_a_partition_whose_owner_changed_within_the_history_rests() -> None:
    def came(age: int) -> list[PartitionSample]:
        first, *others = uneven(age)
        return [replace(first, configurator="c2", epoch=0) if age > 30 else first, *others]

    assert moves(situation(came)) == [("b", "c1", "c2")]


def test_no_more_partitions_move_per_minute_than_allowed() -> None:
    def many(_: int) -> list[PartitionSample]:
        return [part(f"p{n:02}", "c1", arrived=100, work=0.05) for n in range(40)]

    given = situation(many, idle=["c2"])
    assert len(moves(given)) == 10
    past = [moved("z", age) for age in (100, 59, 30, 1)]
    assert len(moves(replace(given, past=past))) == 7
    assert len(moves(replace(given, past=past, moving={"p00": "c2", "p01": "c2"}))) == 5


@pytest.mark.parametrize("work", [0.0, 0.0001, 0.01])
def test_a_new_configurator_gets_its_share_even_if_nothing_is_overloaded(work: float) -> None:
    def even(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", f"c{n % 2}", arrived=1 if work else 0, work=work) for n in range(12)]

    found = moves(situation(even, idle=["c2", "c3"]))
    assert sorted(target for _, _, target in found) == ["c2"] * 3 + ["c3"] * 3
    assert sorted(source for _, source, _ in found) == ["c0"] * 3 + ["c1"] * 3


def test_a_new_configurator_gets_partitions_before_the_window_is_full() -> None:
    def even(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", "c1") for n in range(4)]

    assert moves(situation(even, seconds=1, idle=["c2"])) == [
        ("p0", "c1", "c2"),
        ("p1", "c1", "c2"),
    ]


def test_a_new_configurator_gets_the_cheapest_partitions_where_there_is_no_load() -> None:
    def priced(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", "c1", active=1000 * (5 - n)) for n in range(4)]

    assert moves(situation(priced, idle=["c2"])) == [("p3", "c1", "c2"), ("p2", "c1", "c2")]


def test_a_configurator_that_was_new_a_while_ago_gets_the_rest_of_its_share() -> None:
    def later(age: int) -> list[PartitionSample]:
        owner = "c2" if age < 400 else "c1"
        return [part("p0", owner), *(part(f"p{n}", "c1") for n in range(1, 6))]

    given = situation(later, seconds=500, idle=["c2"])
    assert moves(given) == [("p1", "c1", "c2"), ("p2", "c1", "c2")]


def test_a_configurator_that_has_few_partitions_for_long_is_left_alone() -> None:
    def few(_: int) -> list[PartitionSample]:
        return [part("p0", "c2"), *(part(f"p{n}", "c1") for n in range(1, 6))]

    assert moves(situation(few)) == []


def test_a_leaving_configurator_is_drained_before_anything_else() -> None:
    given = situation(uneven, idle=["c3"], leaving=["c1"], past=[moved("a", 10)])
    # The heaviest first, each to the configurator with the least work.
    first, second, third = moves(given)
    assert [first, second] == [("a", "c1", "c3"), ("b", "c1", "c2")]
    assert third[:2] == ("c", "c1")


def test_a_configurator_that_reports_no_more_is_not_drained_and_gets_nothing() -> None:
    def gone(age: int) -> list[PartitionSample]:
        return [each for each in uneven(age) if age > 10 or each.configurator != "c1"]

    given = situation(gone, idle=["c3"])
    owners = {each.partition: each.configurator for each in uneven(0)}
    assert moves(replace(given, owners=owners, targets={"c2", "c3"})) == []
    assert moves(replace(given, owners=owners, targets={"c1", "c2", "c3"})) == []


def test_a_drained_partition_goes_elsewhere_if_its_move_has_failed_before() -> None:
    past = [replace(moved("a", 10, done=False), target="c3")]
    given = situation(uneven, idle=["c3"], leaving=["c1"], past=past)
    assert ("a", "c1", "c2") in moves(given)


def test_a_drained_partition_whose_move_has_failed_holds_up_no_other() -> None:
    # The balancer stops at the first move that fails, and asks again.
    past = [moved("b", 30, done=False), moved("a", 20, done=False), moved("c", 10)]
    given = situation(uneven, leaving=["c1"], past=past)
    assert [name for name, _, _ in moves(given)] == ["c", "b", "a"]


def test_a_partition_that_is_moving_counts_at_its_target() -> None:
    assert moves(situation(uneven, moving={"a": "c2"})) == []


def test_nothing_moves_without_a_history_or_without_targets() -> None:
    assert moves(Situation(0.0, (), {"a": "c1"}, ["c1", "c2"])) == []
    assert moves(situation(uneven, leaving=["c1", "c2"])) == []
    assert moves(Situation(0.0, (), {}, [])) == []


def test_a_history_that_ended_some_time_ago_says_nothing() -> None:
    given = situation(uneven)
    assert moves(replace(given, now=given.now + 4)) == [("a", "c1", "c2")]
    assert moves(replace(given, now=given.now + 6)) == []


def test_of_two_reports_on_a_partition_that_of_the_newer_owner_counts() -> None:
    def twice(age: int) -> list[PartitionSample]:
        older = part("a", "c2", queued=9000, epoch=0)
        return [older, *uneven(age)] if age < 3 else uneven(age)

    # With a queue of 9000 tasks, a and all others would have to move.
    assert moves(situation(twice)) == [("a", "c1", "c2")]


def test_the_reason_has_the_figures() -> None:
    [move] = PredictivePolicy(OPTIONS).propose(situation(uneven))
    for figure in (
        "0.90 processors",
        "average is 0.50",
        "saves 0.40",
        "s within 120 s",
        "costs 0.1 s",
    ):
        assert figure in move.reason
    idle = situation(lambda _: [part("a", "c1"), part("b", "c1")], idle=["c2"])
    [move] = PredictivePolicy(OPTIONS).propose(idle)
    assert "c2 is new and has 0 partitions; c1 has 2" in move.reason
    [move, *_] = PredictivePolicy(OPTIONS).propose(situation(uneven, leaving=["c1"]))
    assert move.reason == "c1 is leaving"


def test_a_sample_without_a_partition_does_not_count_for_its_rate() -> None:
    def sparse(age: int) -> list[PartitionSample]:
        return [each for each in uneven(age) if each.partition == "d" or age % 2 == 0]

    assert moves(situation(sparse)) == [("a", "c1", "c2")]
