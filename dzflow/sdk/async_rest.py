"""The REST interface for programs with an event loop."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx

from dzflow.sdk.errors import Closed, Unreachable, refused
from dzflow.sdk.rest import Access
from dzflow.sdk.server_events import LineReader, ServerEvent
from dzflow.sdk.talk import Call, Json, Kind, Pause, Reply, Steps, Talk, Wait

T = TypeVar("T")


class AsyncRest:
    """Calls of the control plane; each is awaited.

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
        self._http = httpx.AsyncClient(**self._access.options())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def get(self, path: str, **params: str | int | None) -> Json:
        """`GET` of any path."""
        return await self._run(self._talk.get(path, params))

    async def post(self, path: str, body: Json) -> Json:
        """`POST` to any path."""
        return await self._run(self._talk.post(path, body))

    async def put(self, path: str, body: Json) -> Json:
        """`PUT` of any path."""
        return await self._run(self._talk.put(path, body))

    async def delete(self, path: str) -> Json:
        """`DELETE` of any path."""
        return await self._run(self._talk.delete(path))

    async def spaces(self) -> list[dict[str, Any]]:
        """All spaces."""
        return await self._run(self._talk.items("/spaces"))

    async def space(self, name: str) -> dict[str, Any]:
        """One space."""
        return await self._run(self._talk.space(name))

    async def put_space(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Make a space, or change its schema; it is in use everywhere on return."""
        return await self._run(self._talk.put_space(name, schema))

    async def delete_space(self, name: str) -> None:
        """Remove a space that is not in use."""
        await self._run(self._talk.delete_space(name))

    async def hosts(self) -> list[dict[str, Any]]:
        """All hosts."""
        return await self._run(self._talk.items("/hosts"))

    async def records(self, kind: Kind, **query: str | int | None) -> list[dict[str, Any]]:
        """All subscriptions or advertisements; `host`, `space`, `state` narrow it down."""
        return await self._run(self._talk.items(f"/{kind}s", query))

    async def record(self, kind: Kind, record: str) -> dict[str, Any]:
        """One subscription or advertisement."""
        return await self._run(self._talk.record(kind, record))

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
        """Subscribe or advertise for a host: the record, when all switches have acknowledged."""
        return await self._run(self._talk.begin(kind, host, space, filter, label, ttl))

    async def end(self, kind: Kind, record: str) -> dict[str, Any]:
        """Unsubscribe or unadvertise: the removed record, when all switches have acknowledged."""
        return await self._run(self._talk.end(kind, record))

    async def update(self, kind: Kind, record: str, filter: Json) -> dict[str, Any]:
        """Replace a filter in one step: the record, when all switches have acknowledged."""
        return await self._run(self._talk.update(kind, record, filter))

    async def renew(self, kind: Kind, record: str) -> dict[str, Any]:
        """Keep a record with a ttl."""
        return await self._run(self._talk.renew(kind, record))

    async def explain(self, space: str, filter: Json, host: str | None = None) -> dict[str, Any]:
        """What a filter comes to: regions, in words, unwanted share, flows it would touch."""
        return await self._run(self._talk.explain(space, filter, host))

    async def stream(self, types: str, silence: float) -> AsyncGenerator[ServerEvent | None, None]:
        """Changes as the control plane tells of them; the first one is None: they are followed.

        Ends when the control plane ends it; Unreachable if it is lost, or silent for too long.
        """
        patience = httpx.Timeout(self._access.timeout, read=silence)
        headers = {"Accept": "text/event-stream"}
        query = {"types": types}
        try:
            async with self._http.stream(
                "GET", "/stream", params=query, headers=headers, timeout=patience
            ) as response:
                if response.status_code != 200:
                    content = await response.aread()
                    reply = Reply.read(response.status_code, response.headers, content)
                    raise refused(reply.status, reply.body)
                yield None
                reader = LineReader()
                async for line in response.aiter_lines():
                    if told := reader.read(line):
                        yield told
        except httpx.HTTPError as error:
            raise Unreachable(self._access.lost(error).reason) from error

    async def _run(self, steps: Steps[T]) -> T:
        """Carry a conversation out."""
        go_on = partial(steps.send, None)
        while True:
            try:
                step = go_on()
            except StopIteration as end:
                return cast("T", end.value)
            try:
                go_on = partial(steps.send, await self._outcome(step))
            except BaseException as error:
                go_on = partial(steps.throw, error)

    async def _outcome(self, step: Call | Pause | Wait) -> object:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, Wait):
            return await asyncio.wrap_future(step.future)
        if self._http.is_closed:
            raise Closed("the control plane's client is closed; make another one")
        try:
            response = await self._http.request(
                step.method,
                step.path,
                params=step.params,
                content=step.content(),
                headers=step.headers(),
            )
        except httpx.HTTPError as error:
            return self._access.lost(error)
        return Reply.read(response.status_code, response.headers, response.content)
