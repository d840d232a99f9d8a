"""Which connections have to go when there are too many."""

from hypothesis import given
from hypothesis import strategies as st

from sdn.openflow.connections.arrivals import (
    FAILURE_BURST,
    MAX_ADDRESSES,
    Arrival,
    Arrivals,
    address_of,
)
from sdn.openflow.options import Admission

LIMITS = Admission(connections=8, address_connections=5, unfinished=4, failure_rate=1.0)


def arrivals(switches: int = 0) -> Arrivals:
    return Arrivals(LIMITS, lambda: switches)


def test_the_oldest_unfinished_connection_goes_first() -> None:
    book = arrivals()
    waiting = [Arrival(str(n)) for n in range(4)]
    assert [book.add(each, 0.0) for each in waiting] == [None] * 4
    assert book.add(Arrival("x"), 0.0) is waiting[0]
    book.admit(waiting[1])
    assert book.add(Arrival("y"), 0.0) is None
    assert book.add(Arrival("z"), 0.0) is waiting[2]


def test_an_address_with_too_many_connections_loses_its_own() -> None:
    book = arrivals()
    other = Arrival("other")
    book.add(other, 0.0)
    switches = [Arrival("one") for _ in range(4)]
    for each in switches:
        assert book.add(each, 0.0) is None
        book.admit(each)
    fifth, sixth = Arrival("one"), Arrival("one")
    assert book.add(fifth, 0.0) is None
    assert book.add(sixth, 0.0) is fifth


def test_a_switch_in_use_never_goes() -> None:
    book = arrivals()
    switches = [Arrival(str(n)) for n in range(8)]
    for each in switches:
        assert book.add(each, 0.0) is None
        book.admit(each)
    late = Arrival("late")
    assert book.add(late, 0.0) is late


def test_all_switches_of_a_large_network_fit_from_one_address() -> None:
    book = arrivals(switches=50)
    assert [book.add(Arrival("one"), 0.0) for _ in range(100)] == [None] * 100
    assert book.add(Arrival("one"), 0.0) is not None


def failing(address: str) -> Arrivals:
    book = arrivals()
    for _ in range(FAILURE_BURST):
        book.failed(address, 5.0)
    return book


def test_an_address_that_fails_too_often_is_let_in_while_there_is_room() -> None:
    book = failing("a")
    assert [book.add(Arrival("a"), 5.0) for _ in range(LIMITS.unfinished // 2)] == [None] * 2


def test_an_address_that_fails_too_often_loses_its_own_oldest_when_room_is_scarce() -> None:
    book = failing("a")
    other, switch, first, second = (Arrival(name) for name in "baaa")
    for each in (other, switch, first):
        assert book.add(each, 5.0) is None
        if each is switch:
            book.admit(switch)
    assert book.add(second, 5.0) is first
    assert book.add(Arrival("b"), 5.0) is None  # other addresses have the rest
    assert book.add(Arrival("b"), 5.0) is None
    assert book.add(Arrival("a"), 5.0) is second
    assert book.add(Arrival("b"), 6.5) is other


def test_it_may_have_one_connection_even_then() -> None:
    book = failing("a")
    others = [Arrival("b") for _ in range(4)]
    assert [book.add(each, 5.0) for each in others] == [None] * 4
    assert book.add(Arrival("a"), 5.0) is others[0]


def test_failures_are_forgiven_after_a_while() -> None:
    book = arrivals()
    for _ in range(FAILURE_BURST):
        assert not book.fails_too_often("a", 5.0)
        book.failed("a", 5.0)
    assert book.fails_too_often("a", 5.0)
    assert not book.fails_too_often("b", 5.0)
    assert not book.fails_too_often("a", 6.5)


def test_only_so_many_addresses_are_remembered() -> None:
    book = arrivals()
    for _ in range(FAILURE_BURST):
        book.failed("first", 1.0)
    for number in range(MAX_ADDRESSES):
        book.failed(str(number), 1.0)
    assert not book.fails_too_often("first", 1.0)


STEPS = ["add", "admit", "remove", "fail"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(STEPS))))
def test_limits_hold_after_each_step(steps: list[tuple[str, str]]) -> None:
    book = arrivals()
    open_: list[Arrival] = []
    for address, step in steps:
        if step == "add":
            open_.append(Arrival(address))
            if victim := book.add(open_[-1], 0.0):
                assert not victim.admitted
                open_.remove(victim)
        elif step == "fail":
            for _ in range(FAILURE_BURST):
                book.failed(address, 0.0)
        elif open_ and step == "admit":
            book.admit(open_[len(open_) // 2])
        elif open_:
            book.remove(open_.pop(0))
        assert len(open_) <= LIMITS.connections
        assert sum(not each.admitted for each in open_) <= LIMITS.unfinished
        for name in "abc":
            assert sum(each.address == name for each in open_) <= LIMITS.address_connections


def test_ipv6_is_counted_by_its_network() -> None:
    assert address_of("192.0.2.7") == address_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_of("2001:db8::1") == address_of("2001:db8::2:3") == "2001:db8::/64"
    assert address_of("2001:db8:0:1::1") != address_of("2001:db8::1")
    assert address_of("fe80::1%eth0") == "fe80::/64"
    assert address_of("::1") == "::1"
