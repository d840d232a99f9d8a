"""The REST interface for programs. `dzflow/sdk/async_rest.py` is the same for tasks."""

import ssl
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx
from msgspec import Struct

from dzflow.errors import BadInput
from dzflow.sdk.errors import Closed
from dzflow.sdk.talk import Call, Json, Kind, Lost, Pause, Reply, Steps, Talk, Wait

T = TypeVar("T")


class Access(Struct, frozen=True):
    """Where the control plane is, and how to get in."""

    url: str
    token: str | None = None
    verify: bool = True
    ca: str | Path | None = None  # certificates to trust instead of the machine's
    timeout: float = 30.0

    def __repr__(self) -> str:
        return f"Access({self.url!r})"  # the token is nobody's business

    def options(self) -> dict[str, Any]:
        """The options of an HTTP client."""
        if not self.url.startswith(("http://", "https://")):
            text = f"the control plane's URL begins with http:// or https://, got {self.url!r}"
            raise BadInput(text)
        headers = {"Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        verify: ssl.SSLContext | bool = self.verify
        if self.ca is not None and self.verify:
            try:
                verify = ssl.create_default_context(cafile=str(self.ca))
            except OSError as error:
                raise BadInput(f"no certificates can be read from {self.ca}: {error}") from error
        return {
            "base_url": self.url,
            "headers": headers,
            "verify": verify,
            "timeout": self.timeout,
            "trust_env": False,  # a proxy between hosts and their control plane is a mistake
            "limits": httpx.Limits(max_connections=64, max_keepalive_connections=16),
        }

    def lost(self, error: httpx.HTTPError) -> Lost:
        """What it means that no answer came."""
        what = str(error) or type(error).__name__
        return Lost(f"no answer from {self.url} ({what}); is the control plane running there?")


class Rest:
    """Calls of the control plane; each waits for its answer.

    What cannot be carried out at the moment is tried again until `timeout` seconds are over, but
    never carried out twice. Errors are named in `dzflow.sdk.errors`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        verify: bool = True,
        ca: str | Path | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._access = Access(url, token, verify, ca, timeout)
        self._talk = Talk(time.monotonic, timeout)
        self._http = httpx.Client(**self._access.options())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def get(self, path: str, **params: str | int | None) -> Json:
        """`GET` of any path."""
        return self._run(self._talk.get(path, params))

    def post(self, path: str, body: Json) -> Json:
        """`POST` to any path."""
        return self._run(self._talk.post(path, body))

    def put(self, path: str, body: Json) -> Json:
        """`PUT` of any path."""
        return self._run(self._talk.put(path, body))

    def delete(self, path: str) -> Json:
        """`DELETE` of any path."""
        return self._run(self._talk.delete(path))

    def spaces(self) -> list[dict[str, Any]]:
        """All spaces."""
        return self._run(self._talk.items("/spaces"))

    def space(self, name: str) -> dict[str, Any]:
        """One space."""
        return self._run(self._talk.space(name))

    def put_space(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Make a space, or change its schema; it is in use everywhere on return."""
        return self._run(self._talk.put_space(name, schema))

    def delete_space(self, name: str) -> None:
        """Remove a space that is not in use."""
        self._run(self._talk.delete_space(name))

    def hosts(self) -> list[dict[str, Any]]:
        """All hosts."""
        return self._run(self._talk.items("/hosts"))

    def records(self, kind: Kind, **query: str | int | None) -> list[dict[str, Any]]:
        """All subscriptions or advertisements; `host`, `space`, `state` narrow it down."""
        return self._run(self._talk.items(f"/{kind}s", query))

    def record(self, kind: Kind, record: str) -> dict[str, Any]:
        """One subscription or advertisement."""
        return self._run(self._talk.record(kind, record))

    def begin(
        self,
        kind: Kind,
        host: str,
        space: str,
        filter: Json,
        *,
        label: str | None = None,
        ttl: float | None = None,
    ) -> dict[str, Any]:
        """Subscribe or advertise for a host: the record, when all switches have acknowledged."""
        return self._run(self._talk.begin(kind, host, space, filter, label, ttl))

    def end(self, kind: Kind, record: str) -> dict[str, Any]:
        """Unsubscribe or unadvertise: the removed record, when all switches have acknowledged."""
        return self._run(self._talk.end(kind, record))

    def update(self, kind: Kind, record: str, filter: Json) -> dict[str, Any]:
        """Replace a filter in one step: the record, when all switches have acknowledged."""
        return self._run(self._talk.update(kind, record, filter))

    def renew(self, kind: Kind, record: str) -> dict[str, Any]:
        """Keep a record with a ttl."""
        return self._run(self._talk.renew(kind, record))

    def explain(self, space: str, filter: Json, host: str | None = None) -> dict[str, Any]:
        """What a filter comes to: regions, in words, unwanted share, flows it would touch."""
        return self._run(self._talk.explain(space, filter, host))

    def _run(self, steps: Steps[T]) -> T:
        """Carry a conversation out."""
        go_on = partial(steps.send, None)
        while True:
            try:
                step = go_on()
            except StopIteration as end:
                return cast("T", end.value)
            try:
                go_on = partial(steps.send, self._outcome(step))
            except BaseException as error:
                go_on = partial(steps.throw, error)

    def _outcome(self, step: Call | Pause | Wait) -> object:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if isinstance(step, Wait):
            return step.future.result()
        if self._http.is_closed:
            raise Closed("the control plane's client is closed; make another one")
        try:
            response = self._http.request(
                step.method,
                step.path,
                params=step.params,
                content=step.content(),
                headers=step.headers(),
            )
        except httpx.HTTPError as error:
            return self._access.lost(error)
        return Reply.read(response.status_code, response.headers, response.content)
