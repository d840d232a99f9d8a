"""Which of several dispatchers attends to something."""

import pytest

from configurators.store.etcd.client import Access, Etcd
from dispatcher.knowledge.siblings import Siblings


def dispatchers(*ids: str) -> list[Siblings]:
    """What each of these dispatchers knows when it knows all of them."""
    made = [Siblings(Etcd(Access(("127.0.0.1:1",))), id) for id in ids]
    for each in made:
        each.alive.update(ids)
    return made


def test_a_dispatcher_alone_is_the_first() -> None:
    [only] = dispatchers("d7")
    assert only.is_first


def test_exactly_one_is_the_first_and_the_next_when_it_is_gone() -> None:
    second, first, third = dispatchers("d2", "d1", "d3")
    assert [each.is_first for each in (second, first, third)] == [False, True, False]
    for each in (second, third):
        each.alive.remove("d1")
    assert [each.is_first for each in (second, third)] == [True, False]


@pytest.mark.parametrize("name", ["retention", "upkeep of etcd"])
def test_all_compute_the_same_order_for_a_name(name: str) -> None:
    all_three = dispatchers("d1", "d2", "d3")
    assert sorted(each.rank(name) for each in all_three) == [0, 1, 2]
    assert [each.is_first_for(name) for each in all_three].count(True) == 1
