"""Both policies on simulated histories: overload is resolved, and no load makes them thrash."""

import random
from collections.abc import Callable

import pytest

from monitor.balancing.draining import DrainFirst
from monitor.balancing.policy import Policy
from monitor.balancing.predictive import PredictivePolicy
from monitor.balancing.restraint import RestraintOptions
from monitor.balancing.thesis import ThesisOptions, ThesisPolicy
from tests.monitor.balancing.queueing import Rate, Simulation, zipf

POLICIES: list[Callable[[], Policy]] = [ThesisPolicy, PredictivePolicy]
BOTH = pytest.mark.parametrize("policy", POLICIES, ids=["thesis", "predictive"])

EIGHT = {f"p{n}": f"c{n % 2}" for n in range(8)}
TWO = {"c0": 1.0, "c1": 1.0}

MOST_PER_PARTITION = 4
"""What docs/concepts/balancing.md promises of our policy, for each partition in any hour."""


def at_random(partitions: int, configurators: int, seed: int) -> dict[str, str]:
    draw = random.Random(seed)
    return {f"p{n}": f"c{draw.randrange(configurators)}" for n in range(partitions)}


def most_per_partition(run: Simulation) -> int:
    """The most moves of one partition in any hour."""
    per_hour = [
        sum(
            other.partition == move.partition and 0 <= other.at - move.at < 3600
            for other in run.moves
        )
        for move in run.moves
    ]
    return max(per_hour, default=0)


# Overload


@BOTH
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_overload_by_zipf_load_is_resolved(policy: Callable[[], Policy], seed: int) -> None:
    rates = zipf(64, 1400.0)  # 2.8 of 4 processors

    def run(chosen: Policy | None) -> Simulation:
        owners = at_random(64, 4, seed)
        speeds = {f"c{n}": 1.0 for n in range(4)}
        made = Simulation(owners, speeds, lambda _, name: rates[name], chosen)
        made.run(300)
        return made

    without, balanced = run(None), run(policy())
    assert without.backlog > 10_000
    assert balanced.backlog == 0
    assert balanced.mean_wait < 0.1 * without.mean_wait
    assert len(balanced.moves) <= 10


def test_our_policy_ends_with_less_wait_than_the_thesiss() -> None:
    rates = zipf(64, 1400.0)
    waits = []
    for policy in (ThesisPolicy(), PredictivePolicy()):
        speeds = {f"c{n}": 1.0 for n in range(4)}
        run = Simulation(at_random(64, 4, 0), speeds, lambda _, name: rates[name], policy)
        run.run(300)
        waits.append(run.mean_wait)
    assert waits[1] < waits[0]


@BOTH
def test_a_load_that_is_balanced_causes_no_moves(policy: Callable[[], Policy]) -> None:
    run = Simulation(EIGHT, TWO, lambda _, __: 80.0, policy())
    run.run(600)
    assert run.moves == []


@BOTH
def test_overload_after_a_change_of_load_is_resolved(policy: Callable[[], Policy]) -> None:
    def shift(run: Simulation, name: str) -> float:
        late = run.now >= 400
        hot = run_on_even(name) == late
        return (160.0 if late else 100.0) if hot else 30.0

    def run_on_even(name: str) -> bool:
        return int(name[1:]) % 2 == 0

    without, balanced = (Simulation(EIGHT, TWO, shift, chosen) for chosen in (None, policy()))
    without.run(700)
    balanced.run(700)
    assert balanced.backlog == 0
    assert balanced.mean_wait < 0.1 * without.mean_wait


# Configurators that are unequal, come and go


@BOTH
def test_a_slow_configurator_ends_with_less_work(policy: Callable[[], Policy]) -> None:
    owners = {f"p{n}": f"c{n % 3}" for n in range(12)}
    speeds = {"c0": 1.0, "c1": 1.0, "c2": 0.4}
    run = Simulation(owners, speeds, lambda _, name: 70.0 + int(name[1:]), policy())
    run.run(1800)
    assert run.backlog == 0
    assert len(run.of("c2")) == 2
    assert len(run.moves) <= 4


def test_our_policy_does_not_overload_a_slow_configurator_again_and_again() -> None:
    # The slow one has nothing at first, so that nobody knows how slow it is.
    owners = {f"p{n}": f"c{n % 2}" for n in range(8)}
    speeds = {"c0": 1.0, "c1": 1.0, "c2": 0.25}
    run = Simulation(owners, speeds, lambda _, __: 90.0, PredictivePolicy())
    run.run(3600)
    assert run.backlog == 0
    assert len(run.of("c2")) <= 1
    assert len(run.moves) <= 6


@pytest.mark.parametrize("rate", [0.0, 1.0, 100.0])
def test_our_policy_gives_new_configurators_their_share(rate: float) -> None:
    run = Simulation(EIGHT, TWO, lambda _, __: rate, PredictivePolicy())
    run.run(100)
    assert run.moves == []
    run.come("c2")
    run.come("c3")
    run.run(60)
    assert [len(run.of(name)) for name in run.speeds] == [2, 2, 2, 2]
    run.run(900)
    assert len(run.moves) == 4


@BOTH
def test_leaving_configurators_are_drained(policy: Callable[[], Policy]) -> None:
    owners = {f"p{n}": f"c{n % 4}" for n in range(16)}
    speeds = {f"c{n}": 1.0 for n in range(4)}
    run = Simulation(owners, speeds, lambda _, __: 20.0, DrainFirst(policy()))
    run.run(100)
    run.leaving = {"c0", "c3"}
    run.run(10)
    run.go("c0")
    run.go("c3")
    assert [len(run.of(name)) for name in run.speeds] == [8, 8]
    run.run(300)
    assert run.backlog == 0
    assert len(run.moves) == 8


# Load that swings


def groups(period: int) -> Rate:
    """All partitions that c0 has at first are busy, then all that c1 has, and so on."""

    def rate(run: Simulation, name: str) -> float:
        return 170.0 if int(name[1:]) % 2 == run.now // (period // 2) % 2 else 10.0

    return rate


def pair(period: int) -> Rate:
    """Of two partitions, one is so busy that its configurator can do nothing else, by turns."""

    def rate(run: Simulation, name: str) -> float:
        if name in ("p0", "p1"):
            return 480.0 if int(name[1:]) == run.now // (period // 2) % 2 else 0.0
        return 20.0

    return rate


def chase(run: Simulation, name: str) -> float:
    """An adversary: the load is always where most partitions are."""
    owner = max(run.speeds, key=lambda each: (len(run.of(each)), each))
    own = run.of(owner)
    return 700.0 / len(own) if name in own else 5.0


# Around the window of 20 s, its half and its double, and around the time that partitions rest.
PERIODS = [10, 20, 40, 44, 124, 600]
SWINGS = {
    **{f"groups-{n}": groups(n) for n in PERIODS},
    **{f"pair-{n}": pair(n) for n in PERIODS},
    "chase": chase,
}
ALL_SWINGS = pytest.mark.parametrize("rate", SWINGS.values(), ids=SWINGS)


@pytest.mark.parametrize("name", SWINGS)
def test_our_policy_moves_each_partition_at_most_four_times_per_hour(name: str) -> None:
    run = Simulation(EIGHT, TWO, SWINGS[name], PredictivePolicy())
    run.run(3600)
    assert most_per_partition(run) <= MOST_PER_PARTITION
    assert run.moves_per_hour() <= MOST_PER_PARTITION * len(EIGHT)
    if name.startswith("groups"):  # they are mixed, once, and are even from then on
        assert len(run.moves) <= 4


@ALL_SWINGS
def test_the_thesiss_policy_moves_one_partition_per_window_and_configurator_at_the_most(
    rate: Rate,
) -> None:
    # It may move the same partition to and fro, each time when its load has risen for a window.
    run = Simulation(EIGHT, TWO, rate, ThesisPolicy())
    run.run(3600)
    assert run.moves_per_hour() <= len(TWO) * 3600 / ThesisOptions().window


def test_the_thesiss_policy_thrashes_where_ours_does_not() -> None:
    moves = []
    for policy in (ThesisPolicy(), PredictivePolicy()):
        run = Simulation(EIGHT, TWO, pair(40), policy)
        run.run(3600)
        moves.append(len(run.moves))
    thesis, ours = moves
    assert thesis > 100
    assert ours <= MOST_PER_PARTITION * len(EIGHT)


def test_the_promise_follows_from_the_time_that_partitions_rest() -> None:
    # Between n moves within an hour there are n - 1 rests of 1, 4, 16 … times `rest`.
    rests = [RestraintOptions().rest * 4**n for n in range(MOST_PER_PARTITION)]
    assert sum(rests[:-1]) <= 3600 < sum(rests)
