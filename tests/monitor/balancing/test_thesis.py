"""The thesis's policy, case by case."""

from msgspec.structs import replace

from monitor.balancing.policy import ProposedMove, Situation
from monitor.balancing.thesis import ThesisOptions, ThesisPolicy
from monitor.load.samples import PartitionSample
from tests.monitor.balancing.situations import part, sample, situation

POLICY = ThesisPolicy(ThesisOptions(threshold=1.5, window=20.0, period=5.0))


def growing(age: int) -> list[PartitionSample]:
    """c1 has 900 tasks more than c2 and c3, and has had ten less with each second before."""
    return [
        part("a", "c1", queued=600 - 10 * age),
        part("b", "c1", queued=300),
        part("c", "c1", queued=90),
        part("d", "c2", queued=60),
        part("e", "c3", queued=50),
    ]


def moves(given: Situation, policy: ThesisPolicy = POLICY) -> list[tuple[str, str, str]]:
    return [(move.partition, move.source, move.target) for move in policy.propose(given)]


def test_the_heaviest_partition_goes_to_the_least_loaded_configurator() -> None:
    # The average is 366: a load of 550 is no overload, and 50 + 300 is below it.
    assert moves(situation(growing)) == [("b", "c1", "c3")]
    # With a higher threshold the heaviest fits, too.
    high = ThesisPolicy(ThesisOptions(threshold=2.5, window=20.0, period=5.0))
    assert moves(situation(growing), high) == [("a", "c1", "c3")]


def test_a_partition_that_would_overload_the_target_stays_and_the_next_is_tried() -> None:
    def two(age: int) -> list[PartitionSample]:
        return [part("a", "c1", queued=400 - age), part("b", "c1", queued=9), part("c", "c2")]

    assert moves(situation(two)) == [("b", "c1", "c2")]


def test_nothing_moves_if_every_partition_would_overload_the_target() -> None:
    def one(age: int) -> list[PartitionSample]:
        return [part("a", "c1", queued=400 - age), part("b", "c1"), part("c", "c2")]

    # Moving b would change nothing: its queue is empty.
    assert moves(situation(one)) == []


def test_a_load_that_does_not_rise_is_no_overload() -> None:
    def constant(_: int) -> list[PartitionSample]:
        return growing(0)

    assert moves(situation(constant)) == []


def test_a_load_that_fell_within_the_window_is_no_overload() -> None:
    def dip(age: int) -> list[PartitionSample]:
        return growing(age + 30 if age == 10 else age)

    assert moves(situation(dip)) == []


def test_a_load_that_fell_before_the_window_or_between_collections_does_not_count() -> None:
    def dips(age: int) -> list[PartitionSample]:
        return growing(age + 30 if age in (8, 13, 21, 26) else age)

    assert moves(situation(dips)) == [("b", "c1", "c3")]


def test_a_load_below_the_threshold_is_no_overload() -> None:
    policy = ThesisPolicy(ThesisOptions(threshold=2.8, window=20.0, period=5.0))
    assert moves(situation(growing), policy) == []


def test_nothing_moves_before_the_window_is_full() -> None:
    assert moves(situation(growing, seconds=18)) == []
    assert moves(situation(growing, seconds=21)) == [("b", "c1", "c3")]


def test_nothing_moves_without_any_load_or_history() -> None:
    assert moves(situation(lambda _: [part("a", "c1")], idle=["c2"])) == []
    assert moves(Situation(0.0, (), {"a": "c1"}, ["c1", "c2"])) == []


def test_a_configurator_that_reports_no_more_gets_nothing() -> None:
    given = situation(growing)
    history = [
        sample(each.at, [p for p in each.partitions if p.configurator != "c3"])
        if each.at > given.now - 6
        else each
        for each in given.history
    ]
    # The average of those that report is 525: a load of 660 is no overload.
    assert moves(replace(given, history=history)) == [("a", "c1", "c2")]


def test_a_configurator_that_is_no_target_gets_nothing() -> None:
    assert moves(situation(growing, leaving=["c3"])) == [("b", "c1", "c2")]
    assert moves(situation(growing, leaving=["c2", "c3"])) == []


def test_a_partition_that_is_moving_counts_at_its_target() -> None:
    # Without it, c1 has less than at the last collection.
    assert moves(situation(growing, moving={"c": "c2"})) == []
    # With it, c3 is not the least loaded.
    assert moves(situation(growing, moving={"d": "c3"})) == [("b", "c1", "c2")]


def test_two_overloaded_configurators_give_away_one_partition_each() -> None:
    def two(age: int) -> list[PartitionSample]:
        return [
            part("a", "c1", queued=500 - age),
            part("b", "c1", queued=100),
            part("c", "c2", queued=450 - age),
            part("d", "c2", queued=120),
            *(part(f"e{n}", f"c{n}", queued=1) for n in range(3, 7)),
        ]

    assert moves(situation(two)) == [("b", "c1", "c3"), ("d", "c2", "c4")]


def test_the_reason_has_the_figures() -> None:
    [move] = POLICY.propose(situation(growing))
    assert isinstance(move, ProposedMove)
    for figure in ("990 tasks", "366.7 on average", "1.5 times", "20 s", "300 of them", "50 tasks"):
        assert figure in move.reason
