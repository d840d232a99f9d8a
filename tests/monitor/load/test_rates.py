"""The load as operators see it."""

import pytest

from monitor.load.rates import show_load
from tests.monitor.samples import partition, sample


def test_rates_are_per_second_and_times_per_task_or_slice() -> None:
    busy = partition(
        "p",
        queued=7,
        oldest_s=0.25,
        arrived=30,
        done=20,
        waited_s=0.5,
        decided_s=0.1,
        pushed_s=0.4,
        slices=4,
        flow_ops=100,
        active=9,
        entries=12,
    )
    view = show_load(sample(10.0, busy, seconds=2.0, c1=1.5))
    (shown,) = view.partitions
    assert (view.at, view.seconds) == (10.0, 2.0)
    assert (shown.id, shown.configurator, shown.queued, shown.oldest_s) == ("p", "c1", 7, 0.25)
    assert (shown.arrivals_per_s, shown.done_per_s, shown.service_per_s) == (15.0, 10.0, 40.0)
    assert (shown.wait_ms, shown.decide_ms, shown.push_ms) == (25.0, 25.0, 100.0)
    assert (shown.slices_per_s, shown.flow_ops_per_s) == (2.0, 50.0)
    assert shown.utilisation == 0.25
    (process,) = view.configurators
    assert (process.id, process.partitions, process.memory) == ("c1", 1, 1 << 20)
    assert process.cpu == 0.75
    assert process.arrivals_per_s == view.total.arrivals_per_s == 15.0


def test_what_was_not_observed_is_unknown() -> None:
    view = show_load(sample(10.0, partition("p"), seconds=1.0))
    (shown,) = view.partitions
    assert (shown.wait_ms, shown.decide_ms, shown.push_ms, shown.service_per_s) == (None,) * 4
    assert (shown.arrivals_per_s, shown.utilisation) == (0.0, 0.0)
    assert show_load(sample(10.0, seconds=0.0)).total.done_per_s == 0.0


def test_a_slice_that_began_before_the_interval_makes_it_busy_at_most() -> None:
    long = partition("p", done=1, slices=1, pushed_s=10.0)
    (shown,) = show_load(sample(10.0, long)).partitions
    assert shown.utilisation == 1.0
    assert shown.service_per_s == pytest.approx(0.1)


def test_configurators_have_the_load_of_their_partitions() -> None:
    parts = (
        partition("p", queued=1, done=10, waited_s=1.0, oldest_s=3.0),
        partition("q", queued=2, done=30, waited_s=3.0),
        partition("r", configurator="c2", queued=4, undefined=2),
    )
    view = show_load(sample(10.0, *parts, c1=0.0, c2=0.0, c3=0.0))
    first, second, third = view.configurators
    assert (first.queued, first.done_per_s, first.wait_ms, first.oldest_s) == (3, 40.0, 100.0, 3.0)
    assert (second.queued, second.undefined) == (4, 2)
    assert (third.partitions, third.queued) == (0, 0)
    assert (view.total.queued, view.total.undefined, view.total.done_per_s) == (7, 2, 40.0)
