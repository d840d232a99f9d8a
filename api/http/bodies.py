"""Request bodies: read within a limit and a time, decoded, and looked through before use."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from api.http.app_settings import ApiSettings
from api.http.problems import ApiProblem

JSON = "application/json"
BYTES = "application/octet-stream"

_CLOSE = {"Connection": "close"}


async def read_body(request: Request, limit: int, timeout: float) -> bytes:
    """The whole body; 413 as soon as it is longer than the limit, 408 when the time is up."""
    given = request.headers.get("content-length", "")
    if given.isdecimal() and (len(given) > 18 or int(given) > limit):
        raise _too_large(limit)
    chunks: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                length += len(chunk)
                if length > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        text = f"the body did not come within {timeout:g} s"
        raise ApiProblem("timeout", text, headers=_CLOSE) from None
    except ClientDisconnect:
        text = "the connection ended before the body did"
        raise ApiProblem("timeout", text, headers=_CLOSE) from None
    return b"".join(chunks)


def _too_large(limit: int) -> ApiProblem:
    # The connection stays open, and the server throws away what still comes: a client that is
    # cut off while it sends would not get to read the answer.
    return ApiProblem("too-large", f"a body has at most {limit} bytes")


def check_media_type(request: Request, wanted: str = JSON) -> None:
    """Refuse (415) a body that is not of the wanted type."""
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if kind.strip().lower() != wanted or ("charset=" in charset and "utf-8" not in charset):
        text = f"send the body as {wanted}" + (f", not {given[:80]!r}" if given else "")
        raise ApiProblem("media-type", text, headers={"Accept": wanted})


def decode(raw: bytes, settings: ApiSettings) -> Any:
    """The JSON value; 400 if it is none, is nested too deeply, or names a member twice."""
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep(settings.max_depth) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiProblem("bad-json", f"not JSON: {error}") from None
    members = _count_members(value, settings.max_depth)
    # Each member has a colon. Strings may hold more of them; then a slower look decides.
    if raw.count(b":") != members:
        _refuse_doubles(raw)
    return value


def _count_members(value: Any, max_depth: int) -> int:
    """How many members all objects have together, after a look at how deep they are."""
    members = 0
    level: Iterable[Any] = (value,)
    for _ in range(max_depth):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                members += len(item)
                below.extend(item.values())
            elif type(item) is list:
                below.extend(item)
        if not below:
            return members
        level = below
    if any(type(item) in (dict, list) for item in level):
        raise _too_deep(max_depth)
    return members


def _too_deep(max_depth: int) -> ApiProblem:
    return ApiProblem("bad-json", f"arrays and objects may be nested {max_depth} deep at most")


def _refuse_doubles(raw: bytes) -> None:
    json.loads(raw, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        name = next(_doubles(names))
        raise ApiProblem("bad-json", f"an object names {name[:64]!r} twice", name[:64])


def _doubles(names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)
