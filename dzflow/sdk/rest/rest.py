"""The REST interface for programs without an event loop: `AsyncRest`, with calls that block."""

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dzflow.sdk.background import Portal
from dzflow.sdk.rest.api_protocol import ApiProtocol
from dzflow.sdk.rest.async_rest import AsyncRest

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[ApiProtocol, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["RestCalls", P], T]:
    """The same method, waiting for the result instead of being awaited."""

    def call(calls: "RestCalls", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return calls._portal.run(method(calls._protocol, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class RestCalls:
    """All calls of the REST interface, each blocking until its answer, from any thread."""

    def __init__(self, protocol: ApiProtocol, portal: Portal) -> None:
        self._protocol = protocol
        self._portal = portal

    get = _blocking(ApiProtocol.get)
    post = _blocking(ApiProtocol.post)
    put = _blocking(ApiProtocol.put)
    delete = _blocking(ApiProtocol.delete)
    items = _blocking(ApiProtocol.items)

    spaces = _blocking(ApiProtocol.spaces)
    space = _blocking(ApiProtocol.space)
    put_space = _blocking(ApiProtocol.put_space)
    delete_space = _blocking(ApiProtocol.delete_space)
    new_key = _blocking(ApiProtocol.new_key)
    hosts = _blocking(ApiProtocol.hosts)
    explain = _blocking(ApiProtocol.explain)

    records = _blocking(ApiProtocol.records)
    record = _blocking(ApiProtocol.record)
    begin = _blocking(ApiProtocol.begin)
    end = _blocking(ApiProtocol.end)
    end_all = _blocking(ApiProtocol.end_all)
    update = _blocking(ApiProtocol.update)
    renew = _blocking(ApiProtocol.renew)


class Rest(RestCalls):
    """The control plane's REST interface for programs without an event loop; a context manager.

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
        self._rest = AsyncRest(url, token, verify=verify, ca=ca, timeout=timeout)
        super().__init__(self._rest, Portal())

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
        self._portal.close(self._rest.close())
