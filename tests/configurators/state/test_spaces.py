"""Spaces as they are stored: versions, regions, and who owns what."""

from typing import Any

import msgspec
import pytest

from configurators.engine.partials import Request
from configurators.engine.partition_map import Node, PartitionMap
from configurators.state.spaces import (
    LoadedSpace,
    Spaces,
    TooManyVersions,
    UnfitIndex,
    UnknownSpace,
    new_space,
    new_version,
    same_schema,
    with_current,
    with_map,
    with_settled_map,
    without_version,
)
from configurators.store.keys import PartitionName
from configurators.store.model import SpaceDoc
from dzflow.address import BadAddress, Match, Scope
from dzflow.attribute import BadSchema, UnknownAttribute
from dzflow.region import Region
from sdn.tables.flows import FlowEntry

SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "symbol", "type": "string"},
    ]
}
WIDER = {"attributes": [*SCHEMA["attributes"], {"name": "hot", "type": "bool"}]}


def test_a_space_is_rebuilt_from_its_document() -> None:
    doc = new_space("stocks", 31, SCHEMA, "legs", 5)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(doc), type=SpaceDoc)
    assert again == doc
    view = LoadedSpace.of(again)
    assert view.space.name == "stocks"
    assert len(view.partitions()) == 5
    assert all(PartitionName.parse(name).space == 31 for name in view.partitions())
    assert view.current.scope() == Scope(31, 0)
    assert view.regions("price > 900") == {
        0: view.current.index.regions(view.filter({"price": {"gt": 900}}))
    }


def test_a_version_that_was_seen_is_not_built_again() -> None:
    doc = new_space("stocks", 31, SCHEMA, "legs", 5)
    copy = msgspec.msgpack.decode(msgspec.msgpack.encode(doc), type=SpaceDoc)
    assert LoadedSpace.of(doc).current is LoadedSpace.of(copy).current


@pytest.mark.parametrize("number", [0, 1024])
def test_a_space_needs_a_number_that_fits(number: int) -> None:
    with pytest.raises(BadAddress):
        new_space("stocks", number, SCHEMA, "legs", 1)


def test_a_bad_schema_is_refused() -> None:
    with pytest.raises(BadSchema):
        new_space("stocks", 1, {"attributes": []}, "legs", 1)


def test_attributes_that_do_not_fit_into_an_address_are_reported() -> None:
    wide = {"attributes": [{"name": f"s{n}", "type": "string"} for n in range(40)]}
    assert LoadedSpace.of(new_space("wide", 1, wide, "legs", 1)).current.index.lost


def test_under_lpm_prefixes_are_the_default_and_the_only_choice() -> None:
    doc = new_space("stocks", 1, SCHEMA, "lpm", 4)
    view = LoadedSpace.of(doc)
    assert view.space.index.kind == "zorder"
    assert same_schema(doc, SCHEMA)
    assert new_space("stocks", 1, {**SCHEMA, "index": {"budget": 2}}, "lpm", 4)
    with pytest.raises(UnfitIndex):
        new_space("stocks", 1, {**SCHEMA, "index": {"kind": "fields"}}, "lpm", 4)


def test_a_changed_schema_takes_the_next_version_beside_the_old_one() -> None:
    doc = new_space("stocks", 1, SCHEMA, "legs", 3)
    assert same_schema(doc, SCHEMA)
    assert not same_schema(doc, WIDER)
    for number in (1, 2, 3, 0):
        old = doc.current
        doc = new_version(doc, WIDER, 3)
        assert set(doc.versions) == {old, number}
        assert doc.current == old
        assert same_schema(doc, WIDER)
        with pytest.raises(TooManyVersions):
            new_version(doc, SCHEMA, 3)
        doc = without_version(with_current(doc, number), old)
        assert list(doc.versions) == [doc.current] == [number]


def test_a_filter_has_regions_in_each_version_or_is_refused() -> None:
    view = LoadedSpace.of(new_version(new_space("stocks", 1, SCHEMA, "legs", 3), WIDER, 3))
    regions = view.regions("price > 900")
    assert set(regions) == {0, 1}
    assert all(regions.values())
    with pytest.raises(UnknownAttribute):
        view.regions({"hot": True})  # the old version does not know it


def test_an_entry_tells_its_partition() -> None:
    spaces = Spaces(
        [new_space("stocks", 1, SCHEMA, "legs", 9), new_space("weather", 2, SCHEMA, "lpm", 4)]
    )
    for name in ("stocks", "weather"):
        view = spaces.named(name)
        regions = view.regions("price > 900")[0]
        for partition, partial in view.current.route(Request(False, "s1", "h1", regions)).items():
            for region in partial.regions:
                for tree in (None, 3):
                    match = view.current.scope().match(region, tree)
                    assert spaces.partition_of(FlowEntry(3, 100, match)) == partition


def test_an_entry_of_no_space_has_no_partition() -> None:
    spaces = Spaces([new_space("stocks", 1, SCHEMA, "legs", 9)])
    region = Region.parse("01")
    for scope in (Scope(2), Scope(1, 1), Scope(1, 0, 0xFF3E)):
        assert spaces.partition_of(FlowEntry(3, 100, scope.match(region, 0))) is None
    assert spaces.partition_of(FlowEntry(3, 100, None)) is None
    assert spaces.partition_of(FlowEntry(3, 100, Match(0xFF1E << 112, 0xFFFF << 112))) is None


def test_no_partition_may_remove_an_entry_until_the_map_has_settled() -> None:
    # Seed 608 of the simulation: a full table had no room for what replaced the removed entry.
    doc = new_space("weather", 2, SCHEMA, "lpm", 1)
    spaces = Spaces([doc])
    entry = FlowEntry(3, 100, Scope(2).match(Region.parse(""), 0))
    assert spaces.partitions_beside(entry) == ("2.0/all",)
    cut = with_map(doc, 0, PartitionMap("lpm", Node(0)))
    spaces.put(cut)
    assert spaces.partitions_beside(entry) == ()
    assert spaces.unsettled() == {(2, 0)}
    assert spaces.cutting("2.0/0")
    assert spaces.recut("2.0/all")
    spaces.put(with_settled_map(cut, 0))
    assert spaces.partitions_beside(entry) == ("2.0/0", "2.0/1")
    assert not spaces.unsettled()
    assert not spaces.cutting("2.0/0")


def test_spaces_are_found_by_name_and_number() -> None:
    spaces = Spaces([new_space("stocks", 7, SCHEMA, "legs", 1)])
    assert spaces.named("stocks") is spaces.numbered(7) is spaces.get("stocks")
    assert [view.name for view in spaces] == ["stocks"]
    assert spaces.version(PartitionName(7, 0, "all")) is spaces.named("stocks").current
    assert spaces.version(PartitionName(7, 1, "all")) is None
    assert spaces.version(PartitionName(8, 0, "all")) is None
    assert spaces.drop("stocks")
    assert spaces.drop("stocks") is None
    assert not len(spaces)
    with pytest.raises(UnknownSpace):
        spaces.named("stocks")
