"""Request bodies: read within limits of size and time, decoded, and checked."""

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
        text = f"the body did not arrive within {timeout:g} s"
        raise ApiProblem("timeout", text, headers=_CLOSE) from None
    except ClientDisconnect:
        text = "the connection ended before the body did"
        raise ApiProblem("timeout", text, headers=_CLOSE) from None
    return b"".join(chunks)


def _too_large(limit: int) -> ApiProblem:
    # The connection stays open, and the server discards the rest: a client whose connection is
    # closed while it sends would not read the answer.
    return ApiProblem("too-large", f"a body has at most {limit} bytes")


def check_media_type(request: Request, wanted: str = JSON) -> None:
    """Refuse (415) a body that is not of the wanted type."""
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if kind.strip().lower() != wanted or ("charset=" in charset and "utf-8" not in charset):
        text = f"send the body as {wanted}" + (f", not {given[:80]!r}" if given else "")
        raise ApiProblem("media-type", text, headers={"Accept": wanted})


def check_no_body(request: Request) -> None:
    """Refuse (415) a body of another type than JSON where none is needed.

    The types that forms have, which browsers send for any page without asking, are among those.
    """
    headers = request.headers
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if not empty or headers.get("content-type"):
        check_media_type(request)


def decode(raw: bytes, settings: ApiSettings) -> Any:
    """The JSON value; 400 if it is not JSON, nested too deeply, or names a member twice."""
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep(settings.max_depth) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiProblem("bad-json", f"not JSON: {error}") from None
    members = _count_members(value, settings.max_depth)
    # Each member has a colon. Strings may contain more colons; then a slower check decides.
    if raw.count(b":") != members:
        _refuse_duplicates(raw)
    return value


def _count_members(value: Any, max_depth: int) -> int:
    """The number of members of all objects; 400 if they are nested too deeply."""
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


def _refuse_duplicates(raw: bytes) -> None:
    json.loads(raw, object_pairs_hook=_check_names)


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        name = next(_duplicates(names))
        raise ApiProblem("bad-json", f"an object names {name[:64]!r} twice", name[:64])


def _duplicates(names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)
