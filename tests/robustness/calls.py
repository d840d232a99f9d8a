"""Calls of the REST interface, repeated where that is safe, and what each result proves."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from msgspec import Struct
from msgspec.structs import replace

from tests.end_to_end.world import Json
from tests.robustness.record import Outcome

TRY_SECONDS = 8.0  # for one attempt
PATIENCE = 25.0  # seconds for a request, with all its attempts
PAUSE = 0.1


class CallResult(Struct):
    """The result of a call."""

    outcome: Outcome
    record: Any = None  # or another body
    status: int = 0
    detail: str = ""
    again: bool = False
    pause: float = PAUSE
    start: float = 0.0
    end: float = 0.0
    tries: int = 1


class Calls:
    """Makes calls."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, method: str, path: str, body: Any, key: str) -> CallResult:
        """Make a call under a key, and repeat it until there is an answer, as the SDK does."""
        start, tries = time.time(), 0
        deadline = time.monotonic() + PATIENCE
        while True:
            result = await self.once(method, path, body, key)
            tries += 1
            result.start, result.tries = start, tries
            if not result.again or time.monotonic() + result.pause > deadline:
                return result
            await asyncio.sleep(result.pause)

    async def once(self, method: str, path: str, body: Any, key: str = "") -> CallResult:
        """Make a call once."""
        start = time.time()
        headers = {"Idempotency-Key": key} if key else {}
        try:
            answer = await self._http.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            result = CallResult("unknown", detail=repr(error)[:200], again=True)
        else:
            result = _result_of(answer)
        result.start, result.end = start, time.time()
        return result

    async def settle(
        self, result: CallResult, record: Json, settled: Callable[[Json], bool]
    ) -> CallResult:
        """Wait until an accepted request is settled; unknown if that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while result.status == 202 and not settled(record):
            if record["state"] in ("failed", "removed"):
                result.outcome = "failed" if record["state"] == "failed" else "unknown"
                result.detail = str(record.get("reason"))
                break
            if time.monotonic() > deadline:
                result.outcome, result.detail = "unknown", f"still {record['state']}"
                break
            await asyncio.sleep(PAUSE)
            look = await self.once("GET", f"/requests/{record['id']}", None)
            if look.record is not None:
                record = look.record
        result.record, result.end = record, time.time()
        return result


def updated(result: CallResult, source: Any) -> CallResult:
    """The result of an update that was accepted (202), when its record is settled.

    If the record has another filter then, the update was taken back, or another one followed it.
    """
    if result.status == 202 and result.outcome == "ok" and result.record["filter"] != source:
        result.outcome, result.detail = "unknown", f"its filter is {result.record['filter']}"
    return result


def elements(result: CallResult, count: int) -> list[CallResult]:
    """The result of each element of a batch."""
    if result.outcome != "ok":
        return [replace(result) for _ in range(count)]
    found = []
    for each in result.record:
        part = _judge(each["status"], each, str(each.get("detail", "")), PAUSE)
        part.start, part.end, part.tries = result.start, result.end, result.tries
        found.append(part)
    return found


def _result_of(answer: httpx.Response) -> CallResult:
    body = answer.json() if answer.is_success else None
    after = float(answer.headers.get("retry-after", 0) or 0)
    return _judge(answer.status_code, body, answer.text[:300], max(PAUSE, min(after, 2.0)))


def _judge(status: int, body: Any, detail: str, pause: float) -> CallResult:
    if 200 <= status < 300:
        return CallResult("ok", body, status)
    if status in (429, 503):
        # The service may have begun it before something failed.
        return CallResult("unknown", None, status, detail, True, pause)
    if status == 404:
        return CallResult("absent", None, status, detail)
    if status in (400, 413, 422, 502):
        return CallResult("failed", None, status, detail)
    return CallResult("unknown", None, status, detail)


async def eventually(
    condition: Callable[[], Awaitable[str]], timeout: float, pause: float = 0.2
) -> str:
    """Wait until a condition returns no complaint; its last complaint if the time is up."""
    deadline = time.monotonic() + timeout
    while complaint := await condition():
        if time.monotonic() > deadline:
            return complaint
        await asyncio.sleep(pause)
    return ""
