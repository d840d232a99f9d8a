"""The REST service: requests with changed bodies and paths, raw HTTP, and backups to restore."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from zlib import crc32

from msgspec import Struct

from api.http.app_settings import Token
from configurators.store.keys import NETWORK, NUMBERS, RECORDS, SPACES
from tests.fuzz.mutation import MAX_INPUT, MAX_LEARNT, mutate_bytes, mutate_json
from tests.fuzz.rest_world import TOKENS, Exchange, RestWorld, opened
from tests.fuzz.target import REFUSED, Broken, Probe, Target
from tests.fuzz.targets.files import backup_inputs

_RENEW = 50  # inputs after which there are new records to read, change and remove
_ID = re.compile(rb'"id":"([as]1-[0-9a-f]+)"')
# Stand for records that exist; they have the length of an id, so that no length changes.
_SUBSCRIPTION = "s1-" + "5" * 16
_ADVERTISEMENT = "a1-" + "a" * 16
_COVERS = (
    "api.http.border.http_protocol",
    "api.http.border.bodies",
    "api.http.border.route",
    "api.http.batches",
    "api.http.routes.records",
    "api.http.routes.spaces",
    "api.http.routes.network",
    "api.http.routes.service",
)


class Call(Struct, frozen=True):
    """A request before it is written as bytes."""

    method: str
    path: str
    body: Any = None
    query: str = ""
    headers: Mapping[str, str] = {}


_SUBSCRIBE = {"host": "h2", "space": "box", "filter": {"a": {"gte": 4}}, "wait": False}
_SPACE = {
    "attributes": [{"name": "x", "type": "int", "min": 0, "max": 15}],
    "index": {"kind": "fields", "budget": 2, "shapes": 2},
}
CALLS = (
    Call("POST", "/subscribe", _SUBSCRIBE),
    Call("POST", "/subscribe", {**_SUBSCRIBE, "wait": 0.5, "label": "mine", "ttl": 60}),
    Call("POST", "/subscribe", [_SUBSCRIBE, {**_SUBSCRIBE, "filter": "b == 'x' or not a > 3"}]),
    Call("POST", "/subscribe", _SUBSCRIBE, headers={"Idempotency-Key": "k1"}),
    Call("POST", "/advertise", {"host": "h1", "space": "box", "filter": {}}),
    Call("POST", "/unsubscribe", {"id": _SUBSCRIPTION}),
    Call("POST", "/unsubscribe", [{"id": _SUBSCRIPTION, "wait": True}, {"id": "s1-none"}]),
    Call("POST", "/unadvertise", {"id": _ADVERTISEMENT, "wait": False}),
    Call("GET", "/subscriptions", query="space=box&host=h2&state=active&limit=2"),
    Call("GET", "/advertisements", query=f"after={_ADVERTISEMENT}"),
    Call("GET", f"/subscriptions/{_SUBSCRIPTION}"),
    Call("PUT", f"/subscriptions/{_SUBSCRIPTION}", {"filter": "a < 9", "wait": False}),
    Call("DELETE", f"/subscriptions/{_SUBSCRIPTION}", query="wait=0.2"),
    Call("POST", f"/subscriptions/{_SUBSCRIPTION}/renew"),
    Call("GET", f"/requests/{_ADVERTISEMENT}"),
    Call("GET", "/spaces"),
    Call("GET", "/spaces/box"),
    Call("PUT", "/spaces/other", _SPACE),
    Call("DELETE", "/spaces/other"),
    Call("POST", "/explain", {"space": "box", "filter": "a between 3 and 7"}),
    Call("POST", "/explain", {"space": "box", "event": {"a": 3, "b": "x"}, "host": "h1"}),
    Call("GET", "/hosts"),
    Call("PUT", "/hosts/h9", {"switch": "s1", "port": 77}),
    Call("DELETE", "/hosts/h9"),
    Call("GET", "/topology"),
    Call("GET", "/switches"),
    Call("GET", "/switches/s1/flows", query="source=cp"),
    Call("GET", "/partitions"),
    Call("GET", "/configurators"),
    Call("POST", "/configurators", {"count": 3}),
    Call("GET", "/southbound"),
    Call("POST", "/southbound", {"count": 2}),
    Call("GET", "/load", query="since=-30&resolution=10"),
    Call("POST", "/reports", {"host": "h1", "spaces": {"box": {"received": 3}}}),
    Call("GET", "/stream", query="space=box"),
    Call("GET", "/metrics"),
    Call("GET", "/backup"),
    Call("GET", "/healthz"),
    Call("GET", "/readyz"),
    Call("GET", "/openapi.json"),
)
_BODY_WORDS: tuple[Any, ...] = (
    *("box", "h1", "h2", "h3", _SUBSCRIPTION, _ADVERTISEMENT, "a", "b", "x", "a > 3 and b != 'y'"),
    *(True, False, 15, 16, -1, {"eq": 3}, {"in": [1, 2]}, {"between": [2, 5]}, {"prefix": "x"}),
)
_HEADERS: tuple[tuple[str, str], ...] = (
    ("Idempotency-Key", "k2"),
    ("Idempotency-Key", "ü" * 3),
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/json; charset=latin-1"),
    ("Content-Encoding", "gzip"),
    ("Transfer-Encoding", "chunked"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Content-Length", "5"),
    ("Content-Length", "-1"),
    ("Content-Length", "99999999999999999999"),
    ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Connection", "close"),
    ("Host", "evil.example"),
    ("Host", ""),
    ("Origin", "http://evil.example"),
    ("Origin", "null"),
    ("X-Request-Id", "x" * 300),
    ("X-Forwarded-For", "1.2.3.4, 5.6.7.8"),
    ("X-Forwarded-Proto", "https"),
    ("Authorization", "Bearer op-secret"),
    ("Authorization", "Bearer h1-secret"),
    ("Authorization", "Basic b3A="),
    ("Authorization", "Bearer é"),
    ("Accept", "text/html"),
    ("Range", "bytes=0-1"),
    ("Last-Event-ID", "7"),
)
_PATHS = ("/", "//", "/%00", "/..", "/subscribe/", "/docs", "/SUBSCRIBE", "/subscriptions/%2e%2e/x")
_METHODS = ("GET", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI", "get", "POST", "PUT")


class _Requests:
    """Calls with a few changes, as HTTP; now and then several, or changed as bytes."""

    def __init__(self, random: Random, calls: Sequence[Call], tokens: bool, raw: float) -> None:
        self._random = random
        self._calls = list(calls)
        self._bodies = [call.body for call in calls if call.body is not None]
        self._tokens = tokens
        self._raw = raw  # the share of inputs that are changed as bytes
        self._learnt: list[bytes] = []

    def next(self) -> bytes:
        random = self._random
        if self._learnt and random.random() < 0.1:
            return mutate_bytes(random, random.choice(self._learnt), self._learnt, ())
        data = self._request()
        while random.random() < 0.1:
            data += self._request()
        if random.random() < self._raw:
            data = mutate_bytes(random, data, [data], [b"\r\n", b"\r\n\r\n", b": ", b"\0", b" "])
        return data[:MAX_INPUT]

    def learn(self, data: bytes) -> None:
        if len(self._learnt) < MAX_LEARNT:
            self._learnt.append(data)

    def _request(self) -> bytes:
        random = self._random
        call = random.choice(self._calls)
        method, path, body, query = call.method, call.path, call.body, call.query
        headers = {"Host": "127.0.0.1:8080", **call.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._tokens and random.random() < 0.9:
            headers["Authorization"] = f"Bearer {random.choice(TOKENS).secret}"
        for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
            match random.randrange(10):
                case 0:
                    method = random.choice(_METHODS)
                case 1:
                    path = random.choice((path + "/x", path[:-1], random.choice(_PATHS)))
                case 2:
                    query = _changed_query(random, query)
                case 3:
                    name, value = random.choice(_HEADERS)
                    headers[name] = value
                case _ if body is not None:
                    body = mutate_json(random, body, self._bodies, _BODY_WORDS)
                case _:
                    path = path.replace("box", random.choice(("none", "é", "a b", "x" * 300)))
        content = b"" if body is None else json.dumps(body).encode()
        target = path + (f"?{query}" if query else "")
        return _rendered(random, method, target, headers, content)


def _changed_query(random: Random, query: str) -> str:
    match random.randrange(5):
        case 0:
            return query + "&" + query
        case 1:
            return query.replace("=", random.choice(("", "==", "=%00", "=-1&x=")), 1)
        case 2:
            return "limit=" + random.choice(("0", "-1", "1e9", "١", "9" * 30, ""))
        case 3:
            return "wait=" + random.choice(("nan", "-1", "inf", "true", "0", "1e400"))
        case _:
            return "after=" + random.choice((_SUBSCRIPTION, "", "%ff", "a/b", "s1-"))


def _rendered(
    random: Random, method: str, target: str, headers: Mapping[str, str], content: bytes
) -> bytes:
    given = dict(headers)
    framed = {name.lower() for name in given} & {"content-length", "transfer-encoding"}
    if content and not framed:
        if random.random() < 0.1:
            given["Transfer-Encoding"] = "chunked"
            cut = random.randrange(len(content) + 1)
            pieces = [piece for piece in (content[:cut], content[cut:]) if piece]
            content = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
        else:
            given["Content-Length"] = str(len(content))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join((*lines, "", "")).encode() + content


@contextmanager
def _open(tokens: Sequence[Token]) -> Iterator[Probe]:
    with opened(tokens) as service:
        ids: dict[bytes, bytes] = {}
        number = 0

        def probe(data: bytes) -> str:
            nonlocal number
            if number % _RENEW == 0:
                ids.update(_new_records(service))
            number += 1
            for stands_for, record in ids.items():
                data = data.replace(stands_for, record)
            # Some requests come in two parts.
            check = crc32(data)
            cut = check % (len(data) + 1) if check % 4 == 0 else len(data)
            found = service.send(data[:cut], data[cut:]) if cut < len(data) else service.send(data)
            return _outcome(found)

        yield probe


def _new_records(service: RestWorld) -> dict[bytes, bytes]:
    """A new subscription and a new advertisement, by the ids that stand for them in inputs."""
    found = {}
    for path, stands_for in (("/subscribe", _SUBSCRIPTION), ("/advertise", _ADVERTISEMENT)):
        body = json.dumps({"host": "h1", "space": "box", "filter": {}}).encode()
        headers = {"Host": "127.0.0.1:8080", "Content-Type": "application/json"}
        headers["Authorization"] = f"Bearer {TOKENS[0].secret}"
        answer = service.send(_rendered(Random(1), "POST", path, headers, body))
        match = _ID.search(answer.written)
        if match is None:
            raise Broken(f"a valid request was refused: {answer.written[:500]!r}")
        if len(match[1]) == len(stands_for):
            found[stands_for.encode()] = match[1]
    return found


def _outcome(found: Exchange) -> str:
    kinds = sorted(set(re.findall(rb'"type":"/problems/([a-z-]+)"', found.written)))
    statuses = " ".join(map(str, found.statuses[:3])) or "no answer"
    refused = not found.statuses or found.statuses[0] >= 400
    return f"{REFUSED * refused}{statuses} {b' '.join(kinds[:2]).decode()}".strip()


REST = Target(
    name="rest",
    border="REST",
    open=lambda: _open(()),
    inputs=lambda random: _Requests(random, CALLS, tokens=False, raw=0.05),
    refusals=(),
    covers=_COVERS,
    share=8,
    block=2_500,
    short=250,
    cpu_seconds=20.0,
)

HTTP = Target(
    name="http",
    border="REST",
    open=lambda: _open(TOKENS),
    inputs=lambda random: _Requests(random, CALLS, tokens=True, raw=0.5),
    refusals=(),
    covers=(*_COVERS, "api.http.border.auth"),
    share=12,
    block=2_500,
    short=250,
    cpu_seconds=20.0,
)


# Backups that are restored


@contextmanager
def _open_restore() -> Iterator[Probe]:
    """Restores into a service without records: wholly, or not at all."""
    with ExitStack() as stack:
        service = stack.enter_context(opened())

        def probe(data: bytes) -> str:
            nonlocal service
            before = _stored(service)
            headers = {"Host": "127.0.0.1:8080", "Content-Type": "application/octet-stream"}
            found = service.send(_rendered(Random(1), "POST", "/restore", headers, data))
            refused = not found.statuses or found.statuses[0] >= 400
            if refused and _stored(service) != before:
                raise Broken(f"refused, but carried out in part: {found.written[-500:]!r}")
            if not refused:
                if problem := service.world.errors.found:
                    raise Broken(f"an error was logged: {problem}")
                stack.close()
                service = stack.enter_context(opened())
            return _outcome(found)

        yield probe


def _stored(service: RestWorld) -> dict[str, bytes]:
    store = service.world.store
    prefixes = (NETWORK, SPACES, NUMBERS, RECORDS)
    return {item.key: item.value for prefix in prefixes for item in store.under(prefix)}


RESTORE = Target(
    name="restore",
    border="backup files",
    open=_open_restore,
    inputs=backup_inputs,
    refusals=(),
    covers=("dispatcher.changes.backups",),
    share=1,
    block=500,
    short=60,
    cpu_seconds=20.0,
)
