"""When a configurator wants the lock of a partition that another one has."""

import pytest

from configurators.ownership.passing import LatePartition, OwnWait, PassingPrices, choose

PATIENCE = 0.1


def late(
    name: str, holder: str = "c1", waits: float = 1.0, since_taken: float = 0.0, price: float = 0.0
) -> LatePartition:
    return LatePartition(name, holder, waits, since_taken, price)


def test_an_idle_configurator_wants_a_partition_of_an_overloaded_one() -> None:
    assert choose([late("a"), late("b")], 0.0, PATIENCE, "c2") in ("a", "b")


def test_a_lock_stays_while_tasks_wait_no_longer_than_it_costs_to_pass_it() -> None:
    assert choose([late("a", waits=0.1), late("b", waits=0.09)], 0.0, PATIENCE, "c2") is None
    dear = [late("a", waits=3.0, price=2.0), late("b", waits=3.0, price=2.0)]
    assert choose(dear, 0.0, PATIENCE, "c2") is None
    assert choose([each._replace(waits=4.1) for each in dear], 0.0, PATIENCE, "c2")


def test_a_configurator_with_waiting_tasks_of_its_own_leaves_locks_where_they_are() -> None:
    both = [late("a", waits=1.0), late("b", waits=1.0)]
    assert choose(both, 0.6, PATIENCE, "c2") is None
    assert choose(both, 0.4, PATIENCE, "c2")


def test_the_only_late_partition_of_a_holder_stays_unless_nothing_of_it_is_taken() -> None:
    others = [late("b", "c3"), late("c", "c4")]
    assert choose([late("a"), *others], 0.0, PATIENCE, "c2") is None
    assert choose([late("a", since_taken=0.5), *others], 0.0, PATIENCE, "c2") == "a"


def test_configurators_that_choose_at_the_same_time_spread() -> None:
    partitions = [late(f"p{n}") for n in range(30)]
    chosen = {choose(partitions, 0.0, PATIENCE, f"c{n}") for n in range(20)}
    assert len(chosen) > 10


def test_a_wait_is_forgotten_slowly() -> None:
    own = OwnWait()
    assert own.note(100.0, 2.0) == 2.0
    assert 1.0 < own.note(100.5, 0.0) < 2.0
    assert own.note(101.0, 1.9) == 1.9
    assert own.note(200.0, 0.0) == pytest.approx(0.0)


def test_the_price_of_a_lock_is_what_the_last_ones_have_cost() -> None:
    prices = PassingPrices()
    assert prices.expect(True) == 0.0
    prices.note(False, 6.0)
    prices.note(True, 0.02)
    prices.note(True, 0.04)
    assert prices.expect(True) == pytest.approx(0.03)
    assert prices.expect(False) == 6.0
