"""Regions, operations and entries survive being packed; broken bytes are refused."""

import tracemalloc
from itertools import islice, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurators.streams.packing import (
    BadPacking,
    pack_batch,
    pack_entries,
    pack_ops,
    pack_regions,
    unpack_entries,
    unpack_ops,
    unpack_regions,
)
from dzflow.address import ALL, Match
from dzflow.region import FULL, Region
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup

numbers = st.integers(0, 0xFFFFFFFF)
regions = st.builds(
    lambda bits, mask: Region(bits & mask, mask), st.integers(0, FULL), st.integers(0, FULL)
)
matches = st.builds(
    lambda bits, mask: Match(bits & mask, mask), st.integers(0, ALL), st.integers(0, ALL)
)
actions = st.lists(st.builds(Output, numbers) | st.builds(ToGroup, numbers), max_size=4)
entries = st.builds(
    FlowEntry,
    st.integers(0, 255),
    st.integers(0, 0xFFFF),
    st.none() | matches,
    actions.map(tuple),
    st.none() | st.integers(0, 255),
    st.none() | numbers,
)
operations = st.builds(FlowOp, st.sampled_from(Change), entries)


@given(st.lists(regions))
def test_regions_survive_in_24_bytes_each(given_regions: list[Region]) -> None:
    packed = pack_regions(given_regions)
    assert len(packed) == 24 * len(given_regions)
    assert unpack_regions(packed) == tuple(given_regions)


@given(st.lists(operations))
def test_operations_survive_in_order(ops: list[FlowOp]) -> None:
    assert unpack_ops(pack_ops(ops)) == ops


@given(st.dictionaries(st.sampled_from(["s1", "s2", "s3"]), st.lists(operations)))
def test_a_batch_is_packed_as_each_of_its_switches_alone(batch: dict[str, list[FlowOp]]) -> None:
    assert pack_batch(batch) == {switch: pack_ops(ops) for switch, ops in batch.items()}


@given(st.lists(entries))
def test_entries_survive_in_order(given_entries: list[FlowEntry]) -> None:
    assert unpack_entries(pack_entries(given_entries)) == given_entries


def test_equal_matches_are_the_same_object() -> None:
    entry = FlowEntry(1, 2, Match(1 << 127, 1 << 127), (Output(3), ToGroup(4)), 5)
    (one,) = unpack_entries(pack_entries([entry]))
    (two,) = unpack_entries(pack_entries([entry]))
    assert one.match is two.match
    assert one.actions is two.actions


def test_ever_new_lists_of_tails_take_little_memory() -> None:
    lists = islice(permutations(range(10), 5), 12_000)
    packed = [
        pack_entries([FlowEntry(1, 2, None, (Output(port),), 3) for port in ports])
        for ports in lists
    ]
    tracemalloc.start()
    try:
        for each in packed:
            unpack_entries(each)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4_000_000


@given(st.lists(operations, min_size=1), st.data())
def test_bytes_that_are_cut_short_are_refused(ops: list[FlowOp], data: st.DataObject) -> None:
    packed = pack_ops(ops)
    record = 44
    cut = data.draw(
        st.integers(0, len(packed) - 1).filter(
            lambda at: at < len(packed) - record * len(ops) or (len(packed) - at) % record
        )
    )
    with pytest.raises(BadPacking):
        unpack_ops(packed[:cut])


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for unpack in (unpack_ops, unpack_entries, unpack_regions):
        try:
            unpack(data)
        except BadPacking:
            continue


def test_bits_outside_their_mask_are_refused() -> None:
    with pytest.raises(BadPacking, match="region"):
        unpack_regions(b"\x01" * 12 + bytes(12))
    with pytest.raises(BadPacking, match="match"):
        unpack_entries(pack_entries([FlowEntry(1, 1, Match(1, 0))]))


@pytest.mark.parametrize(
    "entry",
    [
        FlowEntry(256, 0, None),
        FlowEntry(0, 1 << 16, None),
        FlowEntry(0, 0, None, (Output(1 << 32),)),
        FlowEntry(0, 0, None, in_port=1 << 32),
        FlowEntry(0, 0, Match(1 << 128, 1 << 128)),
    ],
)
def test_numbers_that_no_switch_has_are_refused(entry: FlowEntry) -> None:
    with pytest.raises(BadPacking, match="out of range"):
        pack_entries([entry])
