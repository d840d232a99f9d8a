"""The REST interface for programs with an event loop."""

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from dzflow.sdk.errors import CLIENT_CLOSED, Closed, Unreachable, refused
from dzflow.sdk.rest.access import ApiAccess
from dzflow.sdk.rest.api_protocol import ApiProtocol, Call, Lost, Reply
from dzflow.sdk.rest.server_events import LineReader, ServerEvent


class HttpTransport:
    """Sends calls over HTTP; its connections belong to the event loop that first uses it."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._http = httpx.AsyncClient(**access.http_options())
        self._requests: set[asyncio.Task[httpx.Response]] = set()  # in flight
        self._closed = False

    async def send(self, call: Call) -> Reply | Lost:
        """Send a call; its answer, or `Lost` if none came. Closed if `close` interrupts it."""
        if self._closed:
            raise Closed(CLIENT_CLOSED)
        request = asyncio.create_task(
            self._http.request(
                call.method,
                call.path,
                params=call.params,
                content=call.content(),
                headers=call.headers(),
            )
        )
        self._requests.add(request)
        try:
            response = await request
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._closed and caller is not None and not caller.cancelling():
                raise Closed(CLIENT_CLOSED) from None
            raise
        except httpx.HTTPError as error:
            return Lost(self._access.no_answer(error))
        finally:
            self._requests.discard(request)
        return Reply.read(response.status_code, response.headers, response.content)

    async def stream(
        self, types: str, longest_silence: float
    ) -> AsyncGenerator[ServerEvent | None, None]:
        """The control plane's change feed; see `AsyncRest.stream`."""
        timeout = httpx.Timeout(self._access.timeout, read=longest_silence)
        headers = {"Accept": "text/event-stream"}
        query = {"types": types}
        try:
            async with self._http.stream(
                "GET", "/stream", params=query, headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    content = await response.aread()
                    reply = Reply.read(response.status_code, response.headers, content)
                    raise refused(reply.status, reply.body)
                yield None
                reader = LineReader()
                async for line in response.aiter_lines():
                    if change := reader.read(line):
                        yield change
        except httpx.HTTPError as error:
            raise Unreachable(self._access.no_answer(error)) from error

    async def close(self) -> None:
        """Cancel the calls in flight, and close all connections."""
        self._closed = True
        for request in self._requests:
            request.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        await self._http.aclose()


class AsyncRest(ApiProtocol):
    """The control plane's REST interface, awaited; a context manager.

    A call that fails for the moment is repeated until `timeout` seconds are over. The control plane
    carries it out at most once. `dzflow.sdk.errors` has the errors.
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
        self._transport = HttpTransport(ApiAccess(url, token, verify, ca, timeout))
        super().__init__(self._transport.send, asyncio.sleep, time.monotonic, timeout)

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
        await self._transport.close()

    def stream(
        self, types: str, longest_silence: float
    ) -> AsyncGenerator[ServerEvent | None, None]:
        """Changes that the control plane announces, of these types (comma-separated).

        The first element is None: from now on no change is missed. Ends when the control plane ends
        it. Unreachable if the connection breaks, or is silent for `longest_silence` seconds.
        """
        return self._transport.stream(types, longest_silence)
