"""Idempotency keys of calls that leave no record behind: remembered here, a bounded number."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from api.http.problems import ApiProblem

if TYPE_CHECKING:
    from api.http.endpoints import Reply

Name = tuple[str, str]
"""Who called, and the key."""


class KeyMemory:
    """Replies by key; the oldest go first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._known: OrderedDict[Name, tuple[bytes, asyncio.Future[Reply] | None]] = OrderedDict()

    async def once(
        self,
        name: Name,
        fingerprint: bytes,
        action: Callable[[], Awaitable["Reply"]],
        keep: bool = True,
    ) -> "Reply":
        """The action's reply, or that of the same call before; 409 if it was another call.

        Without `keep` the reply is not remembered, and the action is carried out again: for replies
        that may be large, to calls that change nothing.
        """
        known = self._known.get(name)
        if known is not None:
            if known[0] != fingerprint:
                text = "this Idempotency-Key was used for another call; take a new one"
                raise ApiProblem("key-reused", text, "Idempotency-Key")
            if known[1] is not None:
                return await asyncio.shield(known[1])
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._known[name] = (fingerprint, reply)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        try:
            reply.set_result(await action())
        except BaseException as error:
            # A call that failed may be tried again; whoever waits for it is told the same.
            self._known.pop(name, None)
            if isinstance(error, Exception):
                reply.set_exception(error)
                reply.exception()  # seen
            else:
                reply.cancel()
            raise
        if not keep and name in self._known:
            self._known[name] = (fingerprint, None)
        return reply.result()
