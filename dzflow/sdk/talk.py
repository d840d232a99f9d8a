"""What is said to the control plane and what its answers mean, without any I/O.

A conversation is a generator. It yields what is to be done next, a `Call`, a `Pause` or a `Wait`,
and is sent the outcome; `dzflow/sdk/rest.py` carries conversations out, with threads or with tasks.
"""

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeVar
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

T = TypeVar("T")
Json = Any
Kind = Literal["subscription", "advertisement"]

_BEGIN: dict[Kind, str] = {"subscription": "/subscribe", "advertisement": "/advertise"}
_END: dict[Kind, str] = {"subscription": "/unsubscribe", "advertisement": "/unadvertise"}
_BATCH = 1_000  # elements of one call
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LONGEST_WAIT = 10.0  # for the switches, within one call


class Call(Struct, frozen=True):
    """One call of the REST interface. With a `key` it can be repeated without harm."""

    method: str
    path: str
    params: Mapping[str, str | int] = {}
    body: Json = None
    key: str | None = None

    def headers(self) -> dict[str, str]:
        """The headers that are special to this call."""
        found = {} if self.key is None else {"Idempotency-Key": self.key}
        return found if self.body is None else {**found, "Content-Type": "application/json"}

    def content(self) -> bytes | None:
        """The body as it is sent."""
        try:
            return None if self.body is None else msgspec.json.encode(self.body)
        except (TypeError, UnicodeEncodeError) as error:
            raise BadInput(f"this cannot be said in JSON: {error}") from error


class Reply(Struct, frozen=True):
    """An answer: status, body, how long to wait before another try, where to look next."""

    status: int
    body: Json
    retry_after: float | None = None
    location: str | None = None

    @classmethod
    def read(cls, status: int, headers: Mapping[str, str], content: bytes) -> "Reply":
        """Read an answer. An answer that is no JSON has a body of None."""
        try:
            body = msgspec.json.decode(content) if content else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            if status < 400:
                raise BadAnswer(
                    "the answer is not JSON; is this the control plane's URL?"
                ) from None
            body = None
        after = headers.get("retry-after", "")
        seconds = float(after) if after.isdecimal() else None
        return cls(status, body, seconds, headers.get("location"))


class Lost(Struct, frozen=True):
    """No answer came; the call may have been carried out."""

    reason: str


class Pause(Struct, frozen=True):
    """Nothing is to be done for so many seconds."""

    seconds: float


class Wait(Struct, frozen=True):
    """Something that is under way elsewhere is to be waited for."""

    future: "Future[Any]"


Steps = Generator[Call | Pause | Wait, Any, T]


class Talk:
    """Conversations with the control plane, each at most `timeout` seconds long."""

    def __init__(self, clock: Callable[[], float], timeout: float) -> None:
        self._clock = clock
        self._timeout = timeout

    # The four verbs

    def get(self, path: str, params: Mapping[str, str | int | None] | None = None) -> Steps[Json]:
        """Read something."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return (yield from self._body(Call("GET", path, given)))

    def post(self, path: str, body: Json) -> Steps[Json]:
        """Ask for something; repeated under the same key until it is answered."""
        return (yield from self._body(Call("POST", path, body=body, key=_new_key())))

    def put(self, path: str, body: Json) -> Steps[Json]:
        """Put something in its place."""
        return (yield from self._body(Call("PUT", path, body=body)))

    def delete(self, path: str) -> Steps[Json]:
        """Remove something."""
        return (yield from self._body(Call("DELETE", path)))

    def items(
        self, path: str, query: Mapping[str, str | int | None] | None = None
    ) -> Steps[list[dict[str, Any]]]:
        """All elements of a list, page by page."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = yield from self.get(path, {**(query or {}), "after": after})
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise BadAnswer("the answer is no list; is this the control plane's URL?")
            found += page["items"]
            after = page.get("next")
            if after is None:
                return found

    # Spaces

    def space(self, name: str) -> Steps[dict[str, Any]]:
        """One space."""
        return (yield from self._object(Call("GET", _space_path(name))))

    def put_space(self, name: str, schema: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        """Make a space, or change its schema."""
        return (yield from self._object(Call("PUT", _space_path(name), body=schema)))

    def delete_space(self, name: str) -> Steps[None]:
        """Remove a space."""
        yield from self.delete(_space_path(name))

    def explain(self, space: str, source: Json, host: str | None) -> Steps[dict[str, Any]]:
        """What a filter comes to."""
        body = {"space": space, "filter": source}
        body |= {} if host is None else {"host": host}
        return (yield from self._object(Call("POST", "/explain", body=body)))

    # Records

    def record(self, kind: Kind, record: str) -> Steps[dict[str, Any]]:
        """One subscription or advertisement."""
        return (yield from self._object(Call("GET", record_path(kind, record))))

    def begin(
        self, kind: Kind, host: str, space: str, source: Json, label: str | None, ttl: float | None
    ) -> Steps[dict[str, Any]]:
        """Subscribe or advertise: the record when all switches have acknowledged it."""
        wait = _wait(self._timeout)
        body = {"host": host, "space": space, "filter": source, "wait": wait}
        body |= {} if label is None else {"label": label}
        body |= {} if ttl is None else {"ttl": ttl}
        deadline = self._clock() + self._timeout
        call = Call("POST", _BEGIN[kind], body=body, key=_new_key())
        reply = yield from self._ask(call, deadline)
        try:
            return (yield from self._settled(reply, "active", deadline))
        except (NotAcknowledged, Unreachable, Busy, Unavailable):
            end = Call("POST", _END[kind], body={"id": reply.body["id"], "wait": False})
            yield end  # as well as it goes; what has a ttl ends by itself
            raise

    def end(self, kind: Kind, record: str) -> Steps[dict[str, Any]]:
        """Unsubscribe or unadvertise: the removed record when all switches have acknowledged."""
        deadline = self._clock() + self._timeout
        body = {"id": record, "wait": _wait(self._timeout)}
        call = Call("POST", _END[kind], body=body, key=_new_key())
        reply = yield from self._ask(call, deadline)
        return (yield from self._settled(reply, "removed", deadline))

    def end_all(self, kind: Kind, records: Sequence[str], patience: float) -> Steps[None]:
        """End many records, within so many seconds; those that have ended are passed over."""
        patience = min(patience, self._timeout)
        deadline, wait = self._clock() + patience, _wait(patience)
        for first in range(0, len(records), _BATCH):
            some = records[first : first + _BATCH]
            body = [{"id": record, "wait": wait} for record in some]
            call = Call("POST", _END[kind], body=body, key=_new_key())
            reply = yield from self._ask(call, deadline)
            for answer in reply.body:
                if answer["status"] >= 400 and answer["status"] != 404:
                    raise refused(answer["status"], answer)

    def update(self, kind: Kind, name: str, source: Json) -> Steps[dict[str, Any]]:
        """Replace a record's filter; what both filters want is never interrupted."""
        deadline = self._clock() + self._timeout
        body = {"filter": source, "wait": _wait(self._timeout)}
        call = Call("PUT", record_path(kind, name), body=body)
        reply = yield from self._ask(call, deadline)
        record = yield from self._settled(reply, "active", deadline)
        if reply.status == 202 and record.get("filter") != _as_json(source):
            raise _failed(record)
        return record

    def renew(self, kind: Kind, record: str) -> Steps[dict[str, Any]]:
        """Say that a record with a ttl is still wanted."""
        return (yield from self._object(Call("POST", f"{record_path(kind, record)}/renew")))

    def _settled(self, reply: Reply, wanted: str, deadline: float) -> Steps[dict[str, Any]]:
        """Wait until an accepted request is at its end."""
        pause = _FIRST_PAUSE
        while True:
            record = reply.body
            if not isinstance(record, dict) or not {"id", "state"} <= record.keys():
                raise BadAnswer("the answer is no record; is this the control plane's URL?")
            if record["state"] == "failed":
                raise _failed(record)
            if record["state"] == wanted and not record.get("updating"):
                return record
            if self._clock() + pause > deadline:
                why = record.get("reason") or f"it is still {record['state']}"
                text = f"not acknowledged by all switches within {self._timeout:g} s: {why}"
                raise NotAcknowledged(text)
            yield Pause(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)
            where = f"/requests/{quote(record['id'], safe='')}"
            reply = yield from self._ask(Call("GET", where), deadline)

    # One call

    def _body(self, call: Call) -> Steps[Json]:
        reply = yield from self._ask(call, self._clock() + self._timeout)
        return reply.body

    def _object(self, call: Call) -> Steps[dict[str, Any]]:
        body = yield from self._body(call)
        if not isinstance(body, dict):
            raise BadAnswer("the answer is no object; is this the control plane's URL?")
        return body

    def _ask(self, call: Call, deadline: float) -> Steps[Reply]:
        """Make a call, again and again while the control plane is busy or away, until it is late.

        Each call of ours can be repeated: it reads, says what shall be, or has a key.
        """
        pause = _FIRST_PAUSE
        while True:
            reply: Reply | Lost = yield call
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
            yield Pause(wait)
            pause = min(_LONGEST_PAUSE, pause * 2)


def record_path(kind: Kind, record: str) -> str:
    """Where a record is."""
    return f"/{kind}s/{quote(record, safe='')}"


def _wait(timeout: float) -> float:
    """How long a call waits for the switches: its answer must come before the time is up."""
    return min(_LONGEST_WAIT, timeout / 2)


def _space_path(name: str) -> str:
    return f"/spaces/{quote(name, safe='')}"


def _failed(record: Mapping[str, Any]) -> RequestFailed:
    reason = record.get("reason") or "switches refused it"
    return RequestFailed(502, {"title": "The request failed", "detail": reason, **record})


def _as_json(value: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))


def _new_key() -> str:
    return secrets.token_hex(16)
