"""Sends replies to dispatchers, batched: one message per stream and turn of the event loop."""

import asyncio
import logging
from typing import Protocol

from msgspec import Struct

from configurators.streams.messages import Done, Dones, Load, Take, Waiting
from configurators.streams.stream import StreamClosed
from dzflow.aio import OncePerTurn

log = logging.getLogger(__name__)


class TaskSource(Protocol):
    """Where tasks come from and replies go: a stream to a dispatcher."""

    closed: asyncio.Event

    def tell(self, message: Struct) -> None:
        """Send a message; StreamClosed if the stream is closed."""


class ReplyBatcher:
    """Collects replies until the next turn of the event loop, then sends them together."""

    def __init__(self) -> None:
        self._outbox: dict[TaskSource, list[Done]] = {}
        self._sending = OncePerTurn(self._send)

    def reply(self, to: TaskSource | None, reply: Done | Waiting) -> None:
        """Send a reply to the source of a task; without a source, no reply is wanted."""
        if to is None:
            return
        if isinstance(reply, Waiting):
            send_if_open(to, reply)
            return
        if not self._outbox:
            self._sending.schedule()
        self._outbox.setdefault(to, []).append(reply)

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for source, dones in outbox.items():
            send_if_open(source, Dones(dones))


def send_if_open(to: TaskSource, message: Dones | Waiting | Load | Take) -> None:
    """Send a message to a dispatcher; one whose stream is closed asks again when it reconnects."""
    try:
        to.tell(message)
    except StreamClosed as error:
        log.info("%s", error)
