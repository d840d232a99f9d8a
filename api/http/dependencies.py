"""What endpoints ask FastAPI for: dispatcher, monitor, the caller, and idempotency."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends

from api.http.border.auth import Caller
from api.http.border.route import ApiRequest
from dispatcher.dispatcher import Dispatcher
from monitor.monitor import Monitor

T = TypeVar("T")


async def _dispatcher(request: ApiRequest) -> Dispatcher:
    return request.dispatcher


async def _monitor(request: ApiRequest) -> Monitor:
    return request.monitor


async def _caller(request: ApiRequest) -> Caller:
    return request.caller


class Once:
    """Carries out an action that a repeated idempotency key must not bring about again.

    For requests that leave no record; the dispatcher keeps the keys of those that do.
    """

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        self._key = request.idempotency_key()

    async def __call__(self, action: Callable[[], Awaitable[T]], keep: bool = True) -> T:
        """The result of the action, or of the same request before; 409 if that was another one.

        Without `keep`, only what the key was used for is remembered, and not the result.
        """
        if self._key is None:
            return await action()
        request = self._request
        line = f"{request.method} {request.url.path}\n".encode()
        fingerprint = hashlib.sha256(line + request.raw).digest()
        name = (request.caller.name, self._key)
        return await request.context.keys.once(name, fingerprint, action, keep)


async def _once(request: ApiRequest) -> Once:
    return Once(request)


DispatcherDep = Annotated[Dispatcher, Depends(_dispatcher)]
MonitorDep = Annotated[Monitor, Depends(_monitor)]
CallerDep = Annotated[Caller, Depends(_caller)]
OnceDep = Annotated[Once, Depends(_once)]
