"""Answers to dispatchers, gathered: what comes in one turn of the loop goes in one message."""

import asyncio
import logging

from configurators.streams.messages import Done, Dones, Load, Take, Waiting
from configurators.streams.stream import Stream, StreamClosed

log = logging.getLogger(__name__)


class Answers:
    """What is on its way to dispatchers."""

    def __init__(self) -> None:
        self._outbox: dict[Stream, list[Done]] = {}

    def answer(self, to: object, answer: Done | Waiting) -> None:
        """Send an answer to the stream that a task came by."""
        assert isinstance(to, Stream)
        if isinstance(answer, Waiting):
            tell(to, answer)
            return
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._send)
        self._outbox.setdefault(to, []).append(answer)

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for stream, dones in outbox.items():
            tell(stream, Dones(dones))


def tell(stream: Stream, message: Dones | Waiting | Load | Take) -> None:
    """Tell a dispatcher something; one that is gone asks again when it is back."""
    try:
        stream.tell(message)
    except StreamClosed as error:
        log.info("%s", error)
