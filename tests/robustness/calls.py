"""Calls of the REST interface, repeated where that is safe, and what is known of them then."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from msgspec import Struct
from msgspec.structs import replace

from tests.end_to_end.world import Json
from tests.robustness.record import Outcome

TRY_SECONDS = 8.0  # until one try is given up
PATIENCE = 25.0  # seconds until a request is
PAUSE = 0.1


class Told(Struct):
    """What came of a call."""

    outcome: Outcome
    record: Any = None  # or what else the body is
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

    async def ask(self, method: str, path: str, body: Any, key: str) -> Told:
        """Make a call under a key, again and again until there is an answer, as the SDK does."""
        start, tries = time.time(), 0
        deadline = time.monotonic() + PATIENCE
        while True:
            told = await self.once(method, path, body, key)
            tries += 1
            told.start, told.tries = start, tries
            if not told.again or time.monotonic() + told.pause > deadline:
                return told
            await asyncio.sleep(told.pause)

    async def once(self, method: str, path: str, body: Any, key: str = "") -> Told:
        """Make a call once."""
        start = time.time()
        headers = {"Idempotency-Key": key} if key else {}
        try:
            answer = await self._http.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            told = Told("unknown", detail=repr(error)[:200], again=True)
        else:
            told = _told(answer)
        told.start, told.end = start, time.time()
        return told

    async def settle(self, told: Told, record: Json, settled: Callable[[Json], bool]) -> Told:
        """Wait until an accepted request is at its end; unknown if that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while told.status == 202 and not settled(record):
            if record["state"] in ("failed", "removed"):
                told.outcome = "failed" if record["state"] == "failed" else "unknown"
                told.detail = str(record.get("reason"))
                break
            if time.monotonic() > deadline:
                told.outcome, told.detail = "unknown", f"still {record['state']}"
                break
            await asyncio.sleep(PAUSE)
            look = await self.once("GET", f"/requests/{record['id']}", None)
            if look.record is not None:
                record = look.record
        told.record, told.end = record, time.time()
        return told


def updated(told: Told, source: Any) -> Told:
    """What came of an update that was accepted (202) and has come to its end, whose-ever that is.

    If the record has another filter by then, it was taken back, or another update came after it.
    """
    if told.status == 202 and told.outcome == "ok" and told.record["filter"] != source:
        told.outcome, told.detail = "unknown", f"its filter is {told.record['filter']}"
    return told


def elements(told: Told, count: int) -> list[Told]:
    """What came of each element of a batch."""
    if told.outcome != "ok":
        return [replace(told) for _ in range(count)]
    found = []
    for each in told.record:
        part = _judge(each["status"], each, str(each.get("detail", "")), PAUSE)
        part.start, part.end, part.tries = told.start, told.end, told.tries
        found.append(part)
    return found


def _told(answer: httpx.Response) -> Told:
    body = answer.json() if answer.is_success else None
    after = float(answer.headers.get("retry-after", 0) or 0)
    return _judge(answer.status_code, body, answer.text[:300], max(PAUSE, min(after, 2.0)))


def _judge(status: int, body: Any, detail: str, pause: float) -> Told:
    if 200 <= status < 300:
        return Told("ok", body, status)
    if status in (429, 503):
        # It may have been begun before something failed.
        return Told("unknown", None, status, detail, True, pause)
    if status == 404:
        return Told("absent", None, status, detail)
    if status in (400, 413, 422, 502):
        return Told("failed", None, status, detail)
    return Told("unknown", None, status, detail)


async def eventually(
    condition: Callable[[], Awaitable[str]], timeout: float, pause: float = 0.2
) -> str:
    """Wait until a condition has nothing to complain about; its last complaint if it still does."""
    deadline = time.monotonic() + timeout
    while complaint := await condition():
        if time.monotonic() > deadline:
            return complaint
        await asyncio.sleep(pause)
    return ""
