"""Which connections a listener keeps: the longest idle one goes first, one at work never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.process.connections import (
    ConnectionLimits,
    ConnectionTable,
    contains,
    networks,
    origin_of,
)

HERE, THERE = "10.0.0.1", "10.0.0.2"


def table(most: int = 100, of_address: int = 100, reserve: int = 0) -> ConnectionTable[int]:
    return ConnectionTable(ConnectionLimits(most, of_address, reserve, proxies=("10.9.0.0/16",)))


def admitted(known: ConnectionTable[int], key: int, address: str = HERE) -> int | None:
    """Admit a connection; the one that was evicted for it."""
    found = known.admit(key, address)
    assert found.admitted
    return found.evicted


def test_an_address_beyond_its_limit_displaces_only_itself() -> None:
    known = table(of_address=2)
    evicted = [admitted(known, 1, THERE), *(admitted(known, key) for key in (2, 3, 4, 5))]
    assert evicted == [None, None, None, 2, 3]
    assert len(known) == 3
    assert known.evicted == 2


def test_in_total_the_longest_idle_one_goes_first() -> None:
    known = table(most=3)
    for key in (1, 2, 3):
        admitted(known, key, f"10.0.0.{key}")
    known.busy(1)
    known.busy(2)
    known.idle(1)  # after 3
    assert [admitted(known, key, "10.0.1.1") for key in (4, 5)] == [3, 1]


def test_connections_at_work_stay_and_new_ones_are_refused() -> None:
    known = table(most=2)
    for key in (1, 2):
        admitted(known, key)
        known.busy(key)
    assert not known.admit(3, THERE).admitted
    assert known.refused == 1
    known.remove(1)
    assert admitted(known, 3, THERE) is None


@pytest.mark.parametrize("limits", [{"most": 2}, {"of_address": 2}])
def test_the_reserve_is_for_those_that_find_no_room(limits: dict[str, int]) -> None:
    known = table(**limits, reserve=2)
    for key in (1, 2):
        admitted(known, key)
        known.busy(key)
    assert [admitted(known, key) for key in (3, 4, 5)] == [None, None, 3]
    assert [known.is_reserved(key) for key in (1, 2, 3, 4, 5)] == [False, False, False, True, True]
    # Those at work in the reserve stay, too.
    known.busy(4)
    known.busy(5)
    assert not known.admit(6, HERE).admitted
    # An idle one outside of it makes room, and the next connection is an ordinary one.
    known.idle(1)
    assert admitted(known, 7) == 1
    assert not known.is_reserved(7)


def test_behind_a_proxy_everybody_has_one_address() -> None:
    known = table(most=4, of_address=1)
    assert [admitted(known, key, "10.9.3.7") for key in (1, 2, 3, 4)] == [None] * 4
    assert admitted(known, 5, "10.9.3.7") == 1  # the limit in total holds


def test_what_is_not_known_is_ignored() -> None:
    known = table()
    known.busy(1)
    known.idle(1)
    known.remove(1)
    assert not known.is_reserved(1)
    assert len(known) == 0


@pytest.mark.parametrize(
    ("address", "counted_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("", ""),
    ],
)
def test_an_address_counts_as_what_one_caller_can_have(address: str, counted_as: str) -> None:
    assert origin_of(address) == counted_as


def test_networks_contain_addresses_in_every_form() -> None:
    known = networks(["192.0.2.0/24", "2001:db8::1"])
    assert contains(known, "192.0.2.9")
    assert contains(known, "::ffff:192.0.2.9")
    assert contains(known, "2001:db8::1")
    assert not contains(known, "2001:db8::2")
    assert not contains(known, "not an address")
    with pytest.raises(ValueError, match=r"proxy\.example"):
        networks(["proxy.example"])


class Model:
    """The rules, written down a second time: lists instead of an ordered table."""

    def __init__(self, most: int, of_address: int, reserve: int) -> None:
        self.limits = most, of_address, reserve
        self.address: dict[int, str] = {}
        self.reserved: set[int] = set()
        self.idle: list[int] = []

    def admit(self, key: int, address: str) -> tuple[bool, int | None]:
        most, of_address, reserve = self.limits
        ordinary = [known for known in self.address if known not in self.reserved]
        same = [known for known in ordinary if self.address[known] == address]
        full = [known for known in ordinary if known in same or len(same) < of_address]
        if len(same) < of_address and len(ordinary) < most:
            victim = None
        elif able := [known for known in self.idle if known in full]:
            victim = able[0]
        else:
            if len(self.reserved) >= reserve:
                able = [known for known in self.idle if known in self.reserved]
                if not able:
                    return False, None
                self.remove(able[0])
                self.reserved.add(key)
                self._add(key, address)
                return True, able[0]
            self.reserved.add(key)
            victim = None
        if victim is not None:
            self.remove(victim)
        self._add(key, address)
        return True, victim

    def _add(self, key: int, address: str) -> None:
        self.address[key] = address
        self.idle.append(key)

    def remove(self, key: int) -> None:
        self.address.pop(key, None)
        self.reserved.discard(key)
        if key in self.idle:
            self.idle.remove(key)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "busy", "idle", "remove"]),
        st.integers(0, 11),
        st.sampled_from([HERE, THERE, "10.0.0.3"]),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_the_table_follows_the_rules(
    steps: list[tuple[str, int, str]], most: int, of_address: int, reserve: int
) -> None:
    known, model = table(most, of_address, reserve), Model(most, of_address, reserve)
    for step, key, address in steps:
        if step == "admit":
            if key in model.address:
                continue
            found = known.admit(key, address)
            assert (found.admitted, found.evicted) == model.admit(key, address)
        elif step == "remove":
            known.remove(key)
            model.remove(key)
        else:
            getattr(known, step)(key)
            if key in model.idle:
                model.idle.remove(key)
            if step == "idle" and key in model.address:
                model.idle.append(key)
        assert len(known) == len(model.address) <= most + reserve
        assert {key for key in model.address if known.is_reserved(key)} == model.reserved
