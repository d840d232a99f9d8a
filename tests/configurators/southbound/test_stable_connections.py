"""When the connection of a switch counts: damping."""

from configurators.southbound.stable_connections import StableConnections
from configurators.store.model import Connections


def stable() -> StableConnections:
    return StableConnections(stable_after=2.0, longest=60.0)


def test_a_switch_of_another_process_counts_after_a_while() -> None:
    known = stable()
    assert known.observe({"s1"}, (), 10.0) == Connections()
    assert known.next_change(10.0) == 12.0
    assert known.observe({"s1"}, (), 11.9) == Connections()
    assert known.observe({"s1"}, (), 12.0) == Connections(("s1",))
    assert known.next_change(12.0) is None


def test_a_switch_of_this_process_counts_at_once() -> None:
    assert stable().observe({"s2", "s1"}, {"s1"}, 0.0) == Connections(("s1",), ("s1",))


def test_the_time_doubles_with_each_loss_and_losses_are_forgotten() -> None:
    known = stable()
    now = 0.0
    waits = []
    for _ in range(7):
        known.observe({"s1"}, (), now)
        due = known.next_change(now)
        assert due is not None
        waits.append(due - now)
        now = due
        assert known.observe({"s1"}, (), now).connected == ("s1",)
        known.observe((), (), now)
        now += 1.0
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    known.observe({"s1"}, (), now)
    now += 1000.0
    known.observe((), (), now)
    known.observe({"s1"}, (), now)
    assert known.next_change(now) == now + 4.0, "one loss"


def test_a_switch_that_was_used_and_went_is_away_until_it_is_another_processs() -> None:
    known = stable()
    held = {"s1", "s2"}
    assert known.observe({"s1"}, held, 0.0) == Connections(("s1",), ("s1", "s2"))
    assert known.observe((), held, 1.0) == Connections((), ("s1", "s2"), ("s1",))
    assert known.observe((), held, 1000.0).away == ("s1",)
    assert known.observe((), {"s2"}, 1001.0) == Connections((), ("s2",))
    assert known.observe((), held, 1002.0).away == (), "it was not connected since"


def test_a_switch_of_another_process_that_went_is_not_expected_back() -> None:
    known = stable()
    known.observe({"s1"}, (), 0.0)
    assert known.observe((), (), 5.0) == Connections()
    assert known.observe((), {"s1"}, 6.0) == Connections((), ("s1",))
