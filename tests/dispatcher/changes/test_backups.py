"""What is no backup, or one that the API would not have let in, is refused as a whole."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.http.schema.models import Begin, HostIn, SchemaIn
from configurators.state.network import first_network
from configurators.state.spaces import new_space
from configurators.store.model import NetworkDoc
from dispatcher.calls import RecordSpec
from dispatcher.changes.backup_file import (
    FORMAT,
    Backup,
    BadBackup,
    SavedRecord,
    read_backup,
)
from dzflow.address import MAX_SPACE
from dzflow.filters import TooManyConjunctions, parse_filter
from dzflow.space import Space
from sdn.network.topologies import topology
from tests.dispatcher.support import SCHEMA, TIMEOUT, world
from tests.etcd import TestEtcd

NETWORK: NetworkDoc = first_network(topology("line:3"), "legs", 1)
BACKUP = Backup(
    FORMAT,
    1.0,
    [new_space("stocks", 10, SCHEMA, "legs", 5), new_space("sports", 11, SCHEMA, "legs", 1)],
    list(NETWORK.hosts),
    [
        SavedRecord("sa-0123456789abcdef", "subscription", "h1", "stocks", {}, 1.0, "mine", 60.0),
        SavedRecord("aa-0123456789abcdef", "advertisement", "h2", "stocks", "price < 5", 1.0),
        SavedRecord("sb-0123456789abcdef", "subscription", "h1", "sports", [{"price": 5}], 1.0),
    ],
)
DOCUMENT: Any = msgspec.json.decode(msgspec.json.encode(BACKUP))


# It has 61 conjunctions, and takes more work than a new filter may take.
COSTLY = [{"price": n, "volume": 7 * n} for n in range(60)] + [
    {"price": 999, "volume": 1000 + n} for n in range(900)
]


def changed(path: list[Any], value: object) -> bytes:
    """The backup with another value in one place."""
    document = copy.deepcopy(DOCUMENT)
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return msgspec.json.encode(document)


def test_a_backup_is_read() -> None:
    assert read_backup(msgspec.json.encode(BACKUP), NETWORK) == BACKUP


def test_filters_of_more_work_than_new_ones_may_take_are_restored() -> None:
    with pytest.raises(TooManyConjunctions):
        parse_filter(Space.from_json("stocks", SCHEMA), COSTLY)
    assert read_backup(changed(["records", 0, "filter"], COSTLY), NETWORK)


async def test_stored_filters_of_more_work_stay_as_they_are(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w:
        async with w.dispatcher() as d:
            [answer] = await d.begin("subscription", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT)
            assert answer.record
            id = answer.record.id
            data = msgspec.json.decode(await d.backup())
            await d.end("subscription", [id], wait=TIMEOUT)
            data["records"][0]["filter"] = COSTLY
            assert (await d.restore(msgspec.json.encode(data))).records == 1
            [refused] = await d.begin(
                "subscription", [RecordSpec("h1", "stocks", COSTLY)], wait=TIMEOUT
            )
            assert refused.status == 422
        async with w.dispatcher(grace=0.0) as d:
            more = {"attributes": [*SCHEMA["attributes"], {"name": "more", "type": "bool"}]}
            assert (await d.put_space("stocks", more)).version == 1
            [item] = (await d.records("subscription")).items
            assert (item.state, item.filter) == ("active", COSTLY)


NAME, NUMBER, VERSIONS, CURRENT = range(4)
VERSION = DOCUMENT["spaces"][0][VERSIONS]["0"]


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (["format"], "dzflow backup 9", "form"),
        (["spaces", 0, NUMBER], 0, r"spaces\[0\].*number 0"),
        (["spaces", 0, NUMBER], -5, r"spaces\[0\].*number -5"),
        (["spaces", 0, NUMBER], 99999, f"number 99999 is not within 1 to {MAX_SPACE}"),
        (["spaces", 1, NUMBER], 10, "number 10 is that of 'stocks', too"),
        (["spaces", 1, NAME], "stocks", "two spaces"),
        (["spaces", 0, NAME], "a\nb", r"spaces\[0\].*name"),
        (["spaces", 0, NAME], "x" * 100, r"spaces\[0\].*name"),
        (["spaces", 0, CURRENT], 77, "version 77"),
        (["spaces", 0, VERSIONS], {"77": VERSION}, r"spaces\[0\]"),
        (["spaces", 0, VERSIONS], {"0": VERSION, "1": VERSION}, "one version"),
        (["spaces", 0, VERSIONS], {}, "one version"),
        (["spaces", 0, VERSIONS, "0", 0], {}, r"spaces\[0\].*attributes"),
        (["spaces", 0, VERSIONS, "0", 1], [[1, 1, 99]], r"spaces\[0\].*shape"),
        (["spaces", 0, VERSIONS, "0", 1], [[0, 0, 0]] * 100, "at most 65"),
        (["spaces", 0, VERSIONS, "0", 1], None, "shapes"),
        (["spaces", 0, VERSIONS, "0", 2, "plan"], "lpm", "plan lpm"),
        (["spaces", 0, VERSIONS, "0", 2, "root"], {"bit": 96}, "bit 96"),
        (["spaces", 0, VERSIONS, "0", 2, "root"], {"bit": 3, "one": {"bit": 3}}, "twice"),
        (["spaces", 0, 4], "d-1", "no change in progress"),
        (["hosts", 0, "id"], "h\n1", r"hosts\[0\]"),
        (["hosts", 0, "switch"], "nowhere", r"hosts\[0\].*nowhere"),
        (["hosts", 0, "port"], 0, r"hosts\[0\].*port"),
        (["hosts", 0, "mac"], "zz", r"hosts\[0\].*MAC"),
        (["hosts", 1, "id"], "h1", r"hosts\[1\]: there are two hosts 'h1'"),
        (["records", 1, "id"], "sa-0123456789abcdef", r"records\[1\].*id"),
        (["records", 1], DOCUMENT["records"][0], r"records\[1\]: there are two records"),
        (["records", 0, "id"], "../spaces/stocks", r"records\[0\].*id"),
        (["records", 0, "id"], "s1-0123456789abcdef", r"records\[0\].*id"),
        (["records", 0, "kind"], "advertisement", r"records\[0\].*id"),
        (["records", 0, "space"], "nope", r"records\[0\].*space"),
        (["records", 0, "host"], "h99", r"records\[0\].*host"),
        (["records", 0, "label"], "x" * 1_000_000, r"records\[0\].*label"),
        (["records", 0, "ttl"], -1, r"records\[0\].*ttl"),
        (["records", 0, "ttl"], 0, r"records\[0\].*ttl"),
        (["records", 0, "ttl"], 1e12, r"records\[0\].*ttl"),
        (["records", 0, "created"], -1, r"records\[0\].*created"),
        (["records", 0, "created"], 1e300, r"records\[0\].*created"),
        (["records", 0, "filter"], {"prise": 5}, r"records\[0\].*filter.*prise"),
        (["records", 0, "filter"], 7, r"records\[0\].*filter"),
        (["records", 0, "filter"], {"volume": {"in": list(range(9_999))}}, r"filter.*at most"),
    ],
)
def test_what_the_api_would_refuse_is_refused_with_its_place(
    path: list[Any], value: object, text: str
) -> None:
    with pytest.raises(BadBackup, match=text):
        read_backup(changed(path, value), NETWORK, max_filter=4_000)


def test_deep_nesting_is_no_backup() -> None:
    deep = b"[" * 100_000
    for data in (deep, b'{"format":"dzflow backup 1","made":1,"spaces":' + deep):
        with pytest.raises(BadBackup):
            read_backup(data, NETWORK)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a document."""
    found = [path] if path else []
    if isinstance(value, dict):
        for name, item in value.items():
            found += places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found += places(item, (*path, number))
    return found


PLACES = places(DOCUMENT)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=300),
    st.sampled_from(["h1", "stocks", "price < 5", "legs", "lpm", "h1\n", "s", "aa-" + "0" * 16]),
    st.lists(st.integers(-1, 99), max_size=5),
    st.dictionaries(st.sampled_from(["price", "bit", "eq", "x"]), st.integers(-1, 99), max_size=3),
)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """The backup with one or two places changed, removed, doubled or exchanged."""
    document = copy.deepcopy(DOCUMENT)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(PLACES))
        at = document
        try:
            for step in path[:-1]:
                at = at[step]
            kind = draw(st.sampled_from(["replace", "remove", "double", "copy"]))
            if kind == "replace":
                at[path[-1]] = draw(values)
            elif kind == "remove":
                del at[path[-1]]
            elif kind == "double" and isinstance(at, list):
                at.append(at[path[-1]])
            else:
                other: Any = DOCUMENT
                for step in draw(st.sampled_from(PLACES)):
                    other = other[step]
                at[path[-1]] = copy.deepcopy(other)
        except (LookupError, TypeError):
            continue  # an earlier change has removed this place
    return msgspec.json.encode(document)


@settings(max_examples=200, deadline=None)
@given(mutations())
def test_a_changed_backup_is_refused_or_is_one_that_the_api_could_have_made(data: bytes) -> None:
    try:
        found = read_backup(data, NETWORK, max_filter=4_000)
    except BadBackup:
        return
    numbers = {doc.number for doc in found.spaces}
    assert len(numbers) == len({doc.name for doc in found.spaces}) == len(found.spaces)
    for doc in found.spaces:
        version = doc.versions[doc.current]
        msgspec.convert(version.schema, SchemaIn)
        assert Space.from_json(doc.name, version.schema).to_json() == version.schema
        assert 1 <= doc.number <= MAX_SPACE
    for host in found.hosts:
        msgspec.convert(
            {"switch": host.switch, "port": host.port, "mac": host.mac, "ipv6": host.ipv6}, HostIn
        )
    assert len({record.id for record in found.records}) == len(found.records)
    for record in found.records:
        body = {
            "host": record.host,
            "space": record.space,
            "filter": record.filter,
            "label": record.label,
            "ttl": record.ttl,
        }
        msgspec.convert(body, Begin)
