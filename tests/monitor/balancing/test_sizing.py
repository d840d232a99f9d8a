"""How many configurators are proposed, and that the number does not swing."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.balancing.forecast import ForecastOptions
from monitor.balancing.policy import LOOK_BACK, Situation
from monitor.balancing.predictive import PredictivePolicy
from monitor.balancing.sizing import ProposedSize, SizingOptions, propose_size
from monitor.load.history import LoadHistory
from monitor.load.samples import PartitionSample
from tests.monitor.balancing.queueing import Simulation
from tests.monitor.balancing.situations import part, situation

OPTIONS = SizingOptions(smallest=1, largest=8, target=0.5, grow_at=0.7)


def busy(count: int, work: float, seconds: int = 310, cpu: float = 0.0) -> Situation:
    """So many configurators that are busy for a share of their time, with at least 8 partitions."""
    total = max(8, count)

    def load(_: int) -> list[PartitionSample]:
        share = work * count / total
        return [part(f"p{n}", f"c{n % count}", arrived=100, work=share) for n in range(total)]

    return situation(load, seconds=seconds, cpu=cpu)


def remembered(given: Situation) -> Situation:
    """The situation as the monitor knows it: what its history keeps of the time to look back at."""
    history = LoadHistory()
    for one in given.history:
        history.add(one)
    return replace(given, history=history.finest_since(given.now - LOOK_BACK))


def size(given: Situation, options: SizingOptions = OPTIONS) -> int:
    return propose_size(given, options).count


def test_more_are_proposed_when_they_have_too_much_to_do() -> None:
    assert propose_size(busy(2, 0.75), OPTIONS) == ProposedSize(
        3, "configurators are 75 % busy, and should be 50 %"
    )
    assert size(busy(2, 0.69)) == 2


def test_the_whole_process_counts_if_it_uses_more_than_decisions_do() -> None:
    assert size(busy(2, 0.1, cpu=0.75)) == 3


def test_a_backlog_counts() -> None:
    def load(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", "c1", arrived=100, work=0.06, queued=2000) for n in range(10)]

    assert size(situation(load)) == 2


def test_at_most_twice_as_many_are_proposed_at_a_time() -> None:
    assert size(busy(2, 2.5)) == 4


@pytest.mark.parametrize("count", [4, 8])
def test_what_the_monitor_keeps_is_enough_to_propose_fewer(count: int) -> None:
    seconds = 400
    assert size(remembered(busy(count, 0.2, seconds))) == count // 2


def test_many_partitions_are_remembered_coarsely_and_yet_long_enough() -> None:
    def load(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", f"c{n % 4}", arrived=1, work=0.8 / 512) for n in range(512)]

    known = remembered(situation(load, seconds=400))
    assert len(known.history) < 200  # coarser samples for what is long ago
    assert size(known) == 2


def test_fewer_are_proposed_when_they_have_had_little_to_do_for_long() -> None:
    assert propose_size(busy(4, 0.2), OPTIONS) == ProposedSize(
        2, "for 300 s, configurators were at most 20 % busy; 2 would be 40 %"
    )
    assert size(busy(4, 0.2, seconds=200)) == 4
    assert size(busy(4, 0.0)) == 1


def test_a_peak_within_the_last_minutes_keeps_the_number() -> None:
    def load(age: int) -> list[PartitionSample]:
        work = 0.6 if 240 <= age < 270 else 0.01
        return [part(f"p{n}", f"c{n % 4}", arrived=100, work=work) for n in range(4)]

    assert size(situation(load, seconds=310)) == 4


def test_a_short_peak_is_no_reason_for_more() -> None:
    def load(age: int) -> list[PartitionSample]:
        work = 0.9 if age < 5 else 0.3
        return [part(f"p{n}", f"c{n % 2}", arrived=100, work=work) for n in range(2)]

    assert size(situation(load)) == 2


def test_there_are_never_more_than_partitions() -> None:
    def load(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", f"c{n}", arrived=100, work=0.9) for n in range(3)]

    found = propose_size(situation(load), OPTIONS)
    assert found.count == 3
    assert "no more than 3" in found.reason
    assert size(situation(load, idle=["c3", "c4"])) == 3


def test_bounds_hold_whatever_the_load() -> None:
    assert size(busy(2, 0.1), replace(OPTIONS, smallest=3)) == 3
    assert size(busy(4, 0.9), replace(OPTIONS, largest=4)) == 4
    assert size(busy(4, 0.9), replace(OPTIONS, largest=3)) == 3
    assert size(busy(4, 0.0), replace(OPTIONS, smallest=2)) == 2


def test_nothing_changes_while_little_is_known() -> None:
    assert size(busy(2, 0.9, seconds=5)) == 2
    assert propose_size(Situation(0.0, (), {"a": "c1"}, ["c1"]), OPTIONS).count == 1


def came(age: int) -> Callable[[int], list[PartitionSample]]:
    """Of two configurators, one came so many seconds ago."""

    def load(then: int) -> list[PartitionSample]:
        loads = [part(f"p{n}", f"c{n % 2}", arrived=100, work=0.3) for n in range(6)]
        return loads if then <= age else loads[::2]

    return load


def test_there_is_a_pause_after_each_change() -> None:
    assert propose_size(situation(came(50), seconds=310), OPTIONS) == ProposedSize(
        2, "configurators are 90 % busy, and should be 50 %, but their number has just changed"
    )
    assert size(situation(came(70), seconds=310)) == 4


def test_nothing_changes_while_a_configurator_is_leaving() -> None:
    assert size(replace(busy(4, 0.0), targets=["c0", "c1", "c2"])) == 3
    assert size(replace(busy(4, 0.9), targets=["c0", "c1", "c2"])) == 3


def test_waiting_for_switches_is_work_where_partitions_are_limited() -> None:
    def load(_: int) -> list[PartitionSample]:
        return [part(f"p{n}", "c1", arrived=100, work=0.01, pushed_s=0.4) for n in range(4)]

    limited = replace(OPTIONS, forecast=ForecastOptions(at_once=1))
    assert size(situation(load)) == 1
    assert size(situation(load), limited) == 2


@settings(max_examples=40)
@given(st.integers(1, 8), st.floats(0.0, 2.0))
def test_a_proposal_is_followed_by_no_other_if_the_load_stays(count: int, work: float) -> None:
    total = count * work
    for _ in range(4):  # it grows to twice as many at the most
        count = size(busy(count, total / count))
    assert size(busy(count, total / count)) == count
    assert 1 <= count <= 8


@pytest.mark.parametrize("period", [60, 900])
def test_a_load_that_swings_changes_the_number_seldom(period: int) -> None:
    options = replace(OPTIONS, smallest=2)
    owners = {f"p{n}": f"c{n % 2}" for n in range(16)}

    def rate(run: Simulation, _: str) -> float:
        return 60.0 if run.now // (period // 2) % 2 else 6.0  # 1.9 processors or 0.2

    run = Simulation(owners, {"c0": 1.0, "c1": 1.0}, rate, PredictivePolicy(), memory=310)
    changes = 0
    for _ in range(240):
        run.run(15)
        for name in sorted(run.leaving):
            if not run.of(name):
                run.leaving.remove(name)
                run.go(name)
        wanted = propose_size(run.situation(), options).count
        staying = [name for name in run.speeds if name not in run.leaving]
        changes += wanted != len(staying)
        for n in range(wanted - len(staying)):
            run.come(f"n{run.now}.{n}")
        run.leaving.update(staying[wanted:])
    # Each change waits for the one before: at most one to more and one to fewer in 360 s.
    assert changes <= 20
