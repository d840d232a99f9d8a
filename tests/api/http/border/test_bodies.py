"""Bodies are read within limits, decoded and checked."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from api.http.app_settings import ApiSettings
from api.http.border.bodies import check_media_type, decode, read_body
from api.http.problems import ApiProblem

SETTINGS = ApiSettings()


def refusal(raw: bytes, settings: ApiSettings = SETTINGS) -> ApiProblem:
    with pytest.raises(ApiProblem) as caught:
        decode(raw, settings)
    return caught.value


def request(chunks: list[bytes], headers: dict[str, str] | None = None) -> Request:
    """A request whose body comes in these pieces, and which never ends if the last is empty."""
    coming = iter(chunks)

    async def receive() -> dict[str, Any]:
        chunk = next(coming, None)
        if chunk == b"":
            await asyncio.Event().wait()
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    raw = [(k.encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
    return Request({"type": "http", "headers": raw}, receive)


def read(chunks: list[bytes], limit: int = 10, headers: dict[str, str] | None = None) -> bytes:
    return asyncio.run(read_body(request(chunks, headers), limit, timeout=0.05))


def test_a_body_in_pieces_is_put_together() -> None:
    assert read([b"abc", b"def"]) == b"abcdef"


def test_a_body_beyond_the_limit_is_refused_before_it_is_all_there() -> None:
    with pytest.raises(ApiProblem) as caught:
        read([b"abcdef", b"ghijkl", b""])  # the rest would never come
    assert caught.value.problem.status == 413


def test_a_length_beyond_the_limit_is_refused_before_anything_is_read() -> None:
    for length in ("11", "9" * 30):
        with pytest.raises(ApiProblem) as caught:
            read([b""], headers={"content-length": length})
        assert caught.value.problem.status == 413


def test_a_body_that_does_not_arrive_is_a_timeout() -> None:
    with pytest.raises(ApiProblem) as caught:
        read([b"abc", b""])
    assert caught.value.problem.status == 408


def test_a_connection_that_ends_early_is_a_timeout() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    ended = Request({"type": "http", "headers": []}, receive)
    with pytest.raises(ApiProblem) as caught:
        asyncio.run(read_body(ended, 10, 1.0))
    assert caught.value.problem.status == 408


@pytest.mark.parametrize(
    "given_type",
    [
        "",
        "text/plain",
        "application/jsonp",
        "application/json; charset=latin-1",
        "json",
        "\xff/\xfe",
    ],
)
def test_other_types_of_body_are_refused(given_type: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        check_media_type(request([], {"content-type": given_type}))
    assert caught.value.problem.status == 415


@pytest.mark.parametrize(
    "given_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=UTF-8",
        "application/json;",
    ],
)
def test_the_media_type_of_json_may_be_written_in_several_ways(given_type: str) -> None:
    check_media_type(request([], {"content-type": given_type}))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b"\xff\xfe",
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\x01"',
        b"\xef\xbb\xbf{}",
        b"9" * 5_000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"{} {}",
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    assert refusal(raw).problem.status == 400


def test_nesting_is_bounded() -> None:
    decode(b"[" * 32 + b"]" * 32, SETTINGS)
    assert "32" in refusal(b"[" * 33 + b"]" * 33).problem.detail


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": 1, "a": 1}',
        b'[{"filter": {"price": {"gte": 1}, "price": {"lte": 2}}}]',
        b'{"a": {"b": ":", "\\u0062": 1}}',
    ],
)
def test_a_member_that_is_named_twice_is_refused(raw: bytes) -> None:
    problem = refusal(raw).problem
    assert problem.status == 400
    assert problem.field in ("a", "b", "price")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_every_json_value_is_read_as_it_is(value: object) -> None:
    assert decode(json.dumps(value).encode(), SETTINGS) == value


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        decode(raw, SETTINGS)
    except ApiProblem:
        return  # nothing else may be raised
