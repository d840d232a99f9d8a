"""A plan leads to its map, one differing part of the tree at a time."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from configurators.engine.partition_map import Node, PartitionMap
from monitor.plans.steps import next_map, steps_left


@cache
def trees(bits: tuple[int, ...] = (0, 1, 2, 3)) -> st.SearchStrategy[Node | None]:
    if not bits:
        return st.none()
    return st.none() | st.sampled_from(bits).flatmap(
        lambda bit: st.builds(
            Node,
            st.just(bit),
            *[trees(tuple(other for other in bits if other != bit)[:2])] * 3,
        )
    )


def maps() -> st.SearchStrategy[PartitionMap]:
    return st.builds(PartitionMap, st.just("legs"), trees())


@given(maps(), maps())
def test_the_steps_end_at_the_target(current: PartitionMap, target: PartitionMap) -> None:
    steps = steps_left(current, target)
    for left in range(steps, 0, -1):
        assert steps_left(current, target) == left
        following = next_map(current, target)
        assert following is not None
        current = following
    assert current == target
    assert next_map(current, target) is None


@given(maps(), maps())
def test_a_step_leaves_the_leaves_alone_that_both_maps_have(
    current: PartitionMap, target: PartitionMap
) -> None:
    both = set(current.leaves()) & set(target.leaves())
    following = next_map(current, target)
    assert following is None or both <= set(following.leaves())


def test_a_split_and_a_merge_in_different_places_are_two_steps() -> None:
    current = PartitionMap("legs", Node(0, zero=Node(1)))
    target = PartitionMap("legs", Node(0, one=Node(2)))
    assert steps_left(current, target) == 2
    first = next_map(current, target)
    assert first is not None
    assert set(first.leaves()) == {"0-0", "0-1", "0-x"}
