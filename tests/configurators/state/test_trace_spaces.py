"""The spaces in the footer of a trace file: written, read, and refused if they cannot be used."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from configurators.engine.partition_map import Node, PartitionMap
from configurators.state.spaces import LoadedSpace, new_space, new_version, with_map
from configurators.state.trace_spaces import (
    FORMAT,
    SPACES_KEY,
    VERSION_KEY,
    BadTraceSpaces,
    NoTraceSpaces,
    decode_footer,
    encode_footer,
)
from configurators.store.model import SpaceDoc
from dzflow.filters import parse_filter
from sdn.tables.pipeline import PlanName

PRICE = {"name": "price", "type": "float", "min": 0, "max": 1000}
SYMBOL = {"name": "symbol", "type": "enum", "values": ["ACME", "Ümlaut AG", "XYZ"]}
SCHEMA: dict[str, Any] = {"attributes": [PRICE, SYMBOL]}
LOSSY = {"attributes": [{"name": f"a{i}", "type": "string"} for i in range(20)]}
FILTERS = ("price > 900", "price < 10 and symbol == 'XYZ'", "symbol == 'Ümlaut AG'", "true")


def _metadata(*docs: SpaceDoc) -> dict[bytes, bytes]:
    return {key.encode(): text.encode() for key, text in encode_footer(docs).entries.items()}


@pytest.mark.parametrize(
    ("plan", "kind"), [("legs", "fields"), ("legs", "zorder"), ("lpm", "zorder")]
)
def test_a_job_gets_the_index_and_the_map_that_the_service_had(plan: PlanName, kind: str) -> None:
    doc = new_space("stocks", 31, {**SCHEMA, "index": {"kind": kind}}, plan, 7)
    space = decode_footer(_metadata(doc))["stocks"]
    assert (space.number, space.current) == (31, 0)
    stored = space.versions[0]
    index = stored.index("stocks", 0)
    served = LoadedSpace.of(doc)
    assert index.space == served.space
    for text in FILTERS:
        regions = index.regions(parse_filter(index.space, text))
        assert {0: regions} == served.regions(text)
        assert [stored.map.parts(each) for each in regions] == [
            served.current.map.parts(each) for each in regions
        ]
    assert stored.map == doc.versions[0].map
    assert (stored.shapes is None) == (kind == "zorder")


def test_all_spaces_and_versions_are_there_with_the_numbers_of_their_maps() -> None:
    stocks = new_version(new_space("stocks", 1, SCHEMA, "legs", 3), {"attributes": [PRICE]}, 5)
    stocks = with_map(stocks, 1, PartitionMap("legs", Node(3, one=Node(7))))
    other = new_space("other", 2, SCHEMA, "legs", 1)
    spaces = decode_footer(_metadata(stocks, other))
    assert list(spaces) == ["stocks", "other"]
    assert {n: v.map_number for n, v in spaces["stocks"].versions.items()} == {0: 0, 1: 1}
    assert spaces["stocks"].versions[1].map.leaves() == stocks.versions[1].map.leaves()
    assert spaces["other"].versions[0].map == PartitionMap("legs")


def test_the_text_is_as_documented() -> None:
    doc = with_map(
        new_space("stocks", 31, SCHEMA, "legs", 1), 0, PartitionMap("legs", Node(3, one=Node(7)))
    )
    entries = encode_footer([doc]).entries
    assert entries[VERSION_KEY] == "1"
    leaf = {"zero": None, "one": None, "open": None}
    stored = doc.versions[0]
    assert stored.shapes
    assert json.loads(entries[SPACES_KEY]) == {
        "stocks": {
            "number": 31,
            "versions": {
                "0": {
                    "schema": stored.schema,
                    "shapes": [list(shape) for shape in stored.shapes],
                    "map": {
                        "plan": "legs",
                        "root": {"bit": 3, **leaf, "one": {"bit": 7, **leaf}},
                    },
                    "map_number": 1,
                }
            },
            "current": 0,
        }
    }


def test_an_index_with_losses_is_built_without_a_warning() -> None:
    doc = new_space("wide", 1, LOSSY, "legs", 1)
    assert decode_footer(_metadata(doc))["wide"].versions[0].index("wide", 0).lost


def test_spaces_that_were_used_can_be_sent_to_other_processes() -> None:
    space = decode_footer(_metadata(new_space("stocks", 1, SCHEMA, "legs", 5)))["stocks"]
    assert space.versions[0].map.leaves()
    assert pickle.loads(pickle.dumps(space)) == space  # noqa: S301


def test_a_service_without_spaces_writes_an_empty_object() -> None:
    assert decode_footer(_metadata()) == {}


def test_spaces_beyond_the_bound_are_left_out_and_named() -> None:
    small, large, last = (
        new_space("small", 1, SCHEMA, "legs", 1),
        new_space("large", 2, SCHEMA, "legs", 200),
        new_space("last", 3, SCHEMA, "legs", 1),
    )
    bound = len(encode_footer([small, last]).entries[SPACES_KEY]) + 10
    footer = encode_footer([small, large, last], bound)
    assert len(footer.entries[SPACES_KEY]) <= bound
    assert footer.left_out == ("large",)
    assert list(json.loads(footer.entries[SPACES_KEY])) == ["small", "last"]


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {b"ARROW:schema": b"abc"}, {VERSION_KEY.encode(): FORMAT.encode()}],
)
def test_a_file_without_spaces_is_told_apart(metadata: dict[bytes, bytes] | None) -> None:
    with pytest.raises(NoTraceSpaces, match=r"earlier version of dzflow.*leave the file out"):
        decode_footer(metadata)


def test_a_file_of_another_format_is_refused() -> None:
    metadata = {**_metadata(), VERSION_KEY.encode(): b"2"}
    with pytest.raises(BadTraceSpaces, match=r"has format '2'.*use the version of dzflow"):
        decode_footer(metadata)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"a": 1}', b'{"a": {"number": 1}}', b"\xff", b'{"a":' * 100_000],
)
def test_text_that_is_no_spaces_is_refused(data: bytes) -> None:
    with pytest.raises(BadTraceSpaces, match=r"cannot be read.*leave the file out"):
        decode_footer({**_metadata(), SPACES_KEY.encode(): data})


def _no_current(space: dict[str, Any]) -> None:
    space["current"] = 3


def _bad_number(space: dict[str, Any]) -> None:
    space["number"] = 5_000


def _bad_schema(space: dict[str, Any]) -> None:
    space["versions"]["0"]["schema"] = {"attributes": []}


def _bad_map(space: dict[str, Any]) -> None:
    space["versions"]["0"]["map"]["root"] = {"bit": 3, "open": {"bit": 96}}


@pytest.mark.parametrize("spoil", [_no_current, _bad_number, _bad_schema, _bad_map])
def test_spaces_that_cannot_be_used_are_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    metadata = _metadata(new_space("stocks", 1, SCHEMA, "legs", 1))
    spaces = json.loads(metadata[SPACES_KEY.encode()])
    spoil(spaces["stocks"])
    with pytest.raises(BadTraceSpaces, match=r"the space 'stocks' .* cannot be used"):
        decode_footer({**metadata, SPACES_KEY.encode(): json.dumps(spaces).encode()})


@pytest.mark.parametrize("shapes", [None, [[1]], [[500, 500]]])
def test_shapes_that_do_not_fit_are_refused(shapes: object) -> None:
    metadata = _metadata(new_space("stocks", 1, SCHEMA, "legs", 1))
    spaces = json.loads(metadata[SPACES_KEY.encode()])
    spaces["stocks"]["versions"]["0"]["shapes"] = shapes
    changed = {**metadata, SPACES_KEY.encode(): json.dumps(spaces).encode()}
    stored = decode_footer(changed)["stocks"].versions[0]
    with pytest.raises(BadTraceSpaces, match=r"the space 'stocks' .* cannot be used"):
        stored.index("stocks", 0)
