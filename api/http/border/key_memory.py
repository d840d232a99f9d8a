"""Idempotency keys of requests that leave no record: a bounded number, in this process."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from api.http.problems import ApiProblem

T = TypeVar("T")

Name = tuple[str, str]
"""The caller and the key."""


class KeyMemory:
    """Results by key; the oldest are forgotten first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._known: OrderedDict[Name, tuple[bytes, asyncio.Future[Any] | None]] = OrderedDict()

    async def once(
        self,
        name: Name,
        fingerprint: bytes,
        action: Callable[[], Awaitable[T]],
        keep: bool = True,
    ) -> T:
        """The action's result, or that of the same request before; 409 if it was another one.

        Without `keep` the result is not remembered, and the action is carried out again: for
        results that may be large, of requests that change nothing.
        """
        known = self._known.get(name)
        if known is not None:
            if known[0] != fingerprint:
                text = "this Idempotency-Key was used for another request; choose a new one"
                raise ApiProblem("key-reused", text, "Idempotency-Key")
            if known[1] is not None:
                earlier: T = await asyncio.shield(known[1])
                return earlier
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._known[name] = (fingerprint, result)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        try:
            result.set_result(await action())
        except BaseException as error:
            # A request that failed may be tried again; all that wait for it get the same error.
            self._known.pop(name, None)
            if isinstance(error, Exception):
                result.set_exception(error)
                result.exception()  # seen
            else:
                result.cancel()
            raise
        if not keep and name in self._known:
            self._known[name] = (fingerprint, None)
        return result.result()
