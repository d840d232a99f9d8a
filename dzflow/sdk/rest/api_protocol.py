"""The REST interface as a protocol: what to send, when to repeat it, and when it is done.

Without I/O: `ApiProtocol` is given functions that send a call, sleep and read the clock.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dzflow.errors import BadInput
from dzflow.sdk.errors import (
    BadAnswer,
    Busy,
    NotAcknowledged,
    RequestFailed,
    Unavailable,
    Unreachable,
    refused,
)

Json = Any
Kind = Literal["subscription", "advertisement"]

_BEGIN: dict[Kind, str] = {"subscription": "/subscribe", "advertisement": "/advertise"}
_END: dict[Kind, str] = {"subscription": "/unsubscribe", "advertisement": "/unadvertise"}
_BATCH = 1_000  # elements of one call
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two attempts
_LONGEST_WAIT = 10.0  # seconds that one call waits for the switches


class Call(Struct, frozen=True):
    """One HTTP request. The control plane carries calls with the same `key` out once."""

    method: str
    path: str
    params: Mapping[str, str | int] = {}
    body: Json = None
    key: str | None = None

    def headers(self) -> dict[str, str]:
        """The headers that only this call has."""
        found = {} if self.key is None else {"Idempotency-Key": self.key}
        return found if self.body is None else {**found, "Content-Type": "application/json"}

    def content(self) -> bytes | None:
        """The body as JSON; BadInput if it has values that JSON cannot express."""
        try:
            return None if self.body is None else msgspec.json.encode(self.body)
        except (TypeError, UnicodeEncodeError) as error:
            raise BadInput(f"JSON cannot express this: {error}") from error


class Reply(Struct, frozen=True):
    """An answer: status, decoded body, and the seconds in `Retry-After`."""

    status: int
    body: Json
    retry_after: float | None = None

    @classmethod
    def read(cls, status: int, headers: Mapping[str, str], content: bytes) -> "Reply":
        """Read an answer. An error whose body is not JSON has a body of None."""
        try:
            body = msgspec.json.decode(content) if content else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            if status < 400:
                raise BadAnswer(
                    "the answer is not JSON; is this the control plane's URL?"
                ) from None
            body = None
        after = headers.get("retry-after", "")
        return cls(status, body, float(after) if after.isdecimal() else None)


class Lost(Struct, frozen=True):
    """No answer came; the control plane may have carried the call out."""

    reason: str


class ApiProtocol:
    """Calls of the control plane.

    A call that fails for the moment is repeated until `timeout` seconds are over. The control plane
    carries it out at most once.
    """

    def __init__(
        self,
        send: Callable[[Call], Awaitable[Reply | Lost]],
        sleep: Callable[[float], Awaitable[None]],
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        self._send = send
        self._sleep = sleep
        self._clock = clock
        self._timeout = timeout

    # Any path

    async def get(self, path: str, /, **params: str | int | None) -> Json:
        """`GET` of any path."""
        given = {name: value for name, value in params.items() if value is not None}
        return await self._body(Call("GET", path, given))

    async def post(self, path: str, body: Json) -> Json:
        """`POST` to any path, with an idempotency key."""
        return await self._body(Call("POST", path, body=body, key=_new_key()))

    async def put(self, path: str, body: Json) -> Json:
        """`PUT` of any path."""
        return await self._body(Call("PUT", path, body=body))

    async def delete(self, path: str) -> Json:
        """`DELETE` of any path."""
        return await self._body(Call("DELETE", path))

    async def items(self, path: str, /, **query: str | int | None) -> list[dict[str, Any]]:
        """All elements of a list, read page by page."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = await self.get(path, **{**query, "after": after})
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise BadAnswer("the answer is not a list; is this the control plane's URL?")
            found += page["items"]
            after = page.get("next")
            if after is None:
                return found

    # Spaces and hosts

    async def spaces(self) -> list[dict[str, Any]]:
        """All spaces."""
        return await self.items("/spaces")

    async def space(self, name: str) -> dict[str, Any]:
        """One space."""
        return await self._object(Call("GET", _space_path(name)))

    async def put_space(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Create a space or change its schema; other API processes hear of it a moment later."""
        return await self._object(Call("PUT", _space_path(name), body=schema))

    async def new_key(self, name: str, grace: float = 120.0) -> dict[str, Any]:
        """Make a new key for a space with tagged events; the former one is valid for a while."""
        call = Call("POST", f"{_space_path(name)}/key", body={"grace": grace}, key=_new_key())
        return await self._object(call)

    async def delete_space(self, name: str) -> None:
        """Delete a space that has no subscriptions and advertisements."""
        await self.delete(_space_path(name))

    async def hosts(self) -> list[dict[str, Any]]:
        """All hosts."""
        return await self.items("/hosts")

    async def explain(
        self,
        space: str,
        filter: Json | None = None,
        host: str | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The regions of a filter, its share of unwanted events, and the flows it would need.

        With an event, also how it would travel if the host published it.
        """
        given = {"filter": filter, "host": host, "event": event}
        body = {"space": space} | {name: it for name, it in given.items() if it is not None}
        return await self._object(Call("POST", "/explain", body=body))

    # Records: subscriptions and advertisements

    async def records(self, kind: Kind, /, **query: str | int | None) -> list[dict[str, Any]]:
        """All subscriptions or advertisements; `host`, `space` and `state` restrict the list."""
        return await self.items(f"/{kind}s", **query)

    async def record(self, kind: Kind, record: str) -> dict[str, Any]:
        """One subscription or advertisement."""
        return await self._object(Call("GET", _record_path(kind, record)))

    async def begin(
        self,
        kind: Kind,
        host: str,
        space: str,
        filter: Json,
        *,
        label: str | None = None,
        ttl: float | None = None,
    ) -> dict[str, Any]:
        """Subscribe or advertise for a host; the record, when all switches have acknowledged."""
        wait = _wait_for_switches(self._timeout)
        body = {"host": host, "space": space, "filter": filter, "wait": wait}
        body |= {} if label is None else {"label": label}
        body |= {} if ttl is None else {"ttl": ttl}
        deadline = self._clock() + self._timeout
        call = Call("POST", _BEGIN[kind], body=body, key=_new_key())
        reply = await self._ask(call, deadline)
        try:
            return await self._until_settled(reply, "active", deadline)
        except (NotAcknowledged, Unreachable, Busy, Unavailable):
            # One attempt to withdraw the request; if it fails, the ttl ends the record.
            await self._send(Call("POST", _END[kind], body={"id": reply.body["id"], "wait": False}))
            raise

    async def end(self, kind: Kind, record: str) -> dict[str, Any]:
        """Unsubscribe or unadvertise; the removed record, when all switches have acknowledged."""
        deadline = self._clock() + self._timeout
        body = {"id": record, "wait": _wait_for_switches(self._timeout)}
        call = Call("POST", _END[kind], body=body, key=_new_key())
        reply = await self._ask(call, deadline)
        return await self._until_settled(reply, "removed", deadline)

    async def end_all(self, kind: Kind, records: Sequence[str], timeout: float) -> None:
        """End many records within `timeout` seconds; records that have ended are skipped."""
        timeout = min(timeout, self._timeout)
        deadline, wait = self._clock() + timeout, _wait_for_switches(timeout)
        for first in range(0, len(records), _BATCH):
            body = [{"id": record, "wait": wait} for record in records[first : first + _BATCH]]
            call = Call("POST", _END[kind], body=body, key=_new_key())
            reply = await self._ask(call, deadline)
            for answer in reply.body:
                if answer["status"] >= 400 and answer["status"] != 404:
                    raise refused(answer["status"], answer)

    async def update(self, kind: Kind, record: str, filter: Json) -> dict[str, Any]:
        """Replace a record's filter in one step; the record, when all switches have acknowledged.

        Events that match both filters are delivered throughout.
        """
        deadline = self._clock() + self._timeout
        body = {"filter": filter, "wait": _wait_for_switches(self._timeout)}
        call = Call("PUT", _record_path(kind, record), body=body)
        reply = await self._ask(call, deadline)
        settled = await self._until_settled(reply, "active", deadline)
        if reply.status == 202 and settled.get("filter") != _as_json(filter):
            raise _failed(settled)
        return settled

    async def renew(self, kind: Kind, record: str) -> dict[str, Any]:
        """Keep a record that has a ttl for another ttl."""
        return await self._object(Call("POST", f"{_record_path(kind, record)}/renew"))

    async def _until_settled(self, reply: Reply, wanted: str, deadline: float) -> dict[str, Any]:
        """Poll an accepted request until its record has the wanted state."""
        pause = _FIRST_PAUSE
        while True:
            record = reply.body
            if not isinstance(record, dict) or not {"id", "state"} <= record.keys():
                raise BadAnswer("the answer is not a record; is this the control plane's URL?")
            if record["state"] == "failed":
                raise _failed(record)
            if record["state"] == wanted and not record.get("updating"):
                return record
            if self._clock() + pause > deadline:
                why = record.get("reason") or f"it is still {record['state']}"
                text = f"not acknowledged by all switches within {self._timeout:g} s: {why}"
                raise NotAcknowledged(text)
            await self._sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)
            where = f"/requests/{quote(record['id'], safe='')}"
            reply = await self._ask(Call("GET", where), deadline)

    # One call

    async def _body(self, call: Call) -> Json:
        return (await self._ask(call, self._clock() + self._timeout)).body

    async def _object(self, call: Call) -> dict[str, Any]:
        body = await self._body(call)
        if not isinstance(body, dict):
            raise BadAnswer("the answer is not an object; is this the control plane's URL?")
        return body

    async def _ask(self, call: Call, deadline: float) -> Reply:
        """Send a call, and repeat it until the deadline while the control plane is busy or away.

        Every call can be repeated: it reads, or it says what shall be, or it has a key.
        """
        pause = _FIRST_PAUSE
        while True:
            reply = await self._send(call)
            if isinstance(reply, Lost):
                error: Exception = Unreachable(reply.reason)
                wait = pause
            elif reply.status in (429, 503):
                error = refused(reply.status, reply.body)
                wait = pause if reply.retry_after is None else reply.retry_after
            elif reply.status >= 400:
                raise refused(reply.status, reply.body)
            else:
                return reply
            if self._clock() + wait > deadline:
                raise error
            await self._sleep(wait)
            pause = min(_LONGEST_PAUSE, pause * 2)


def _record_path(kind: Kind, record: str) -> str:
    return f"/{kind}s/{quote(record, safe='')}"


def _space_path(name: str) -> str:
    return f"/spaces/{quote(name, safe='')}"


def _wait_for_switches(timeout: float) -> float:
    """How long one call waits for the switches: its answer must come before the timeout."""
    return min(_LONGEST_WAIT, timeout / 2)


def _failed(record: Mapping[str, Any]) -> RequestFailed:
    reason = record.get("reason") or "switches refused it"
    return RequestFailed(502, {"title": "The request failed", "detail": reason, **record})


def _as_json(value: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))


def _new_key() -> str:
    return secrets.token_hex(16)
