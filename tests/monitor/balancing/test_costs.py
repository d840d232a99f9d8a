"""What a task costs, at configurators that may be unequal."""

import pytest

from monitor.balancing.costs import TaskCosts
from tests.monitor.balancing.situations import part, sample


def test_the_cost_of_a_task_is_the_time_of_decisions_over_the_tasks_done() -> None:
    samples = [sample(n, [part("a", "c1", arrived=10_000, work=20.0)]) for n in range(10)]
    assert TaskCosts(samples).per_task("a", "c1") == pytest.approx(0.002)


def test_waiting_for_switches_costs_time_only_where_partitions_are_limited() -> None:
    load = part("a", "c1", arrived=1000, work=1.0, pushed_s=9.0)
    costs = [TaskCosts([sample(0, [load])], at_once) for at_once in (None, 1, 5, 20)]
    found = [each.per_task("a", "c1") for each in costs]
    assert found == pytest.approx([0.001, 0.010, 0.002, 0.001])


def test_a_partition_with_few_tasks_counts_as_usual_at_its_configurator() -> None:
    samples = [
        sample(0, [part("a", "c1", arrived=10_000, work=20.0), part("b", "c1", arrived=1, work=5)])
    ]
    assert TaskCosts(samples).per_task("c", "c1") == pytest.approx(0.0025, rel=0.01)
    assert TaskCosts(samples).per_task("b", "c1") < 0.3  # its own figure is 5 s


def test_configurators_count_as_equal_while_nothing_else_is_known() -> None:
    samples = [sample(0, [part("a", "c1", arrived=1000, work=2.0), part("b", "c2", arrived=1000)])]
    assert TaskCosts(samples).per_task("a", "c2") == pytest.approx(0.002)


def test_how_slow_a_configurator_is_is_learned_from_partitions_that_moved() -> None:
    samples = [
        sample(
            0, [part("a", "c1", arrived=1000, work=2.0), part("b", "c1", arrived=1000, work=1.0)]
        ),
        sample(
            1, [part("a", "c2", arrived=1000, work=6.0), part("b", "c1", arrived=1000, work=1.0)]
        ),
    ]
    costs = TaskCosts(samples)
    assert costs.per_task("b", "c2") == pytest.approx(0.003, rel=0.01)
    assert costs.per_task("a", "c1") == pytest.approx(0.002, rel=0.01)
    # A partition that has just come is expected to cost what it cost elsewhere.
    assert TaskCosts(samples[:1]).per_task("b", "c2") == pytest.approx(0.001)


def test_nothing_is_known_without_tasks() -> None:
    assert TaskCosts([]).per_task("a", "c1") == 0.0
