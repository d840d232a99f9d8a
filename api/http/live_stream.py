"""Server-sent events: a bounded number of streams, with keep-alives, that end with the server."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.http.problems import ApiProblem
from dispatcher.views import Change

_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ],
}


class Streams:
    """All open streams of this process."""

    def __init__(self, most: int, most_of_host: int, keep_alive: float) -> None:
        self._most = most
        self._most_of_host = most_of_host
        self._keep_alive = keep_alive
        self._stopping = asyncio.Event()
        self._open: Counter[str | None] = Counter()  # by host; None: of operators
        self._last = (Change("lagged", None), b"")  # the last change that was encoded

    def stop(self) -> None:
        """End all streams, so that the server does not wait for them."""
        self._stopping.set()

    def check(self, host: str | None) -> None:
        """Refuse (503) another stream if there are too many, or if the server stops."""
        if self._stopping.is_set():
            raise ApiProblem("overloaded", "the service is stopping")
        if self._open.total() >= self._most:
            raise ApiProblem("overloaded", f"{self._most} streams are open already")
        if host is not None and self._open[host] >= self._most_of_host:
            text = f"{self._most_of_host} streams of {host} are open already"
            raise ApiProblem("overloaded", text)

    async def send(
        self, host: str | None, changes: AsyncIterator[Change], receive: Receive, send: Send
    ) -> None:
        """Send changes as they come until they end, the reader goes, or the server stops."""
        self._open[host] += 1
        ends = [
            asyncio.ensure_future(_wait_for_disconnect(receive)),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        coming = asyncio.ensure_future(anext(changes, None))
        await asyncio.sleep(0)  # lets the subscription to changes begin
        try:
            await send(_START)
            # At once: from this line on, the reader gets every change.
            await send(_body(b": dzflow\n\n"))
            while not any(end.done() for end in ends):
                done, _ = await asyncio.wait(
                    {*ends, coming}, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED
                )
                if coming in done:
                    change = coming.result()
                    if change is None:
                        break
                    coming = asyncio.ensure_future(anext(changes, None))
                    await send(_body(self._encoded(change)))
                elif not done:
                    await send(_body(b": still here\n\n"))
            if not ends[0].done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._open[host] -= 1
            if not self._open[host]:
                del self._open[host]
            for task in (*ends, coming):
                task.cancel()
            await asyncio.gather(*ends, coming, return_exceptions=True)
            if hasattr(changes, "aclose"):
                await changes.aclose()

    def _encoded(self, change: Change) -> bytes:
        """A change as bytes; streams that send the same one share them."""
        if change is not self._last[0]:
            self._last = (change, event(change))
        return self._last[1]


class EventStream(Response):
    """A response that lasts until one side ends it."""

    def __init__(self, streams: Streams, host: str | None, changes: AsyncIterator[Change]) -> None:
        super().__init__()
        self._streams = streams
        self._host = host
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the stream."""
        await self._streams.send(self._host, self._changes, receive, send)


def event(change: Change) -> bytes:
    """A change as a server-sent event; encoded JSON has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (change.type.encode(), msgspec.json.encode(change.data))


def _body(content: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
