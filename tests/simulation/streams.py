"""Streams between processes: in order, with delays; a cut loses the messages on their way."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from itertools import count
from types import TracebackType
from typing import Any, Self

from configurators.streams.listener import CannotConnect, Listener
from configurators.streams.stream import (
    OnMessage,
    Receives,
    RemoteError,
    Stream,
    StreamClosed,
    StreamOptions,
)
from tests.simulation.loop import NOWHERE, Node, VirtualLoop, this_node

HANDSHAKE = 5.0
COPY_DELAYS = (0.0, 0.1, 0.4)  # seconds
SILENCE = 10.0

Opened = Callable[[Stream], None]


class Wires:
    """All listeners and streams of a run."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.listeners: dict[str, SimListener] = {}
        self.streams: list[SimStream] = []  # the ends that connected
        self.blocked: set[frozenset[str]] = set()  # pairs of processes that cannot reach each other
        self.trace: Callable[[str], None] | None = None
        self._ports = count(1)

    def delay(self) -> float:
        """How long a message takes."""
        draw = self.loop.random.random()
        return 0.0001 + draw * 0.002 + (draw - 0.95 if draw > 0.95 else 0.0)

    def address(self) -> str:
        """A new address."""
        return f"host:{next(self._ports)}"

    def between(self, first: str, second: str) -> bool:
        """Whether two processes can reach each other."""
        return frozenset((first, second)) not in self.blocked

    def listen(
        self,
        address: str,
        token: bytes,
        on_message: OnMessage,
        receives: Receives,
        name: str = "",
        on_open: Opened | None = None,
        options: StreamOptions | None = None,
    ) -> "SimListener":
        """Make a listener; for `Environment.listener`."""
        del address, token, receives, options
        return SimListener(self, name, on_message, on_open)

    async def connect(
        self,
        address: str,
        token: bytes,
        on_message: OnMessage,
        receives: Receives,
        name: str,
        options: StreamOptions | None = None,
        on_open: Opened | None = None,
    ) -> Stream:
        """Open a stream to a listener; for `Environment.connect`."""
        del token, receives, options
        return await _connect(self, address, on_message, name, on_open)

    def cut(self, stream: "SimStream", reason: str) -> None:
        """Break a connection: both ends notice, sooner or later."""
        for end in (stream, stream.other):
            end.break_off()
        for end in (stream, stream.other):
            self.loop.at(self.loop.now + self.delay(), end.node.context, end.lose, reason)

    def of(self, node: Node) -> "list[SimStream]":
        """The open streams of a process."""
        self.streams = [s for s in self.streams if not (s.over and s.other.over)]
        return [s for s in self.streams if node in (s.node, s.other.node)]


class SimStream(Stream):
    """One end of a stream."""

    other: "SimStream"

    def __init__(self, wires: Wires, node: Node, peer: str, on_message: OnMessage) -> None:
        self.wires = wires
        self.peer = peer
        self.node = node
        self.closed = asyncio.Event()
        self.reason = ""
        self.over = False  # nothing is sent or received here any more
        self.opened_at = 0.0
        self.slow = 0.0  # seconds that each message takes longer
        self.on_lost: Callable[[], object] = lambda: None  # for the listener
        self._on_message = on_message
        self._era = 0
        self._last = 0.0
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._next = count(1)

    def tell(self, message: Any) -> None:
        """Send a message."""
        self._post("tell", 0, message)

    async def ask(self, message: Any, timeout: float) -> Any:
        """Send a message and wait for the reply."""
        number = next(self._next)
        self._post("ask", number, message)
        future = self._questions[number] = self.wires.loop.create_future()
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            del self._questions[number]

    def close(self, reason: str = "") -> None:
        """End it after the messages that were sent."""
        if not self.over:
            self._post("end", 0, reason)
            self.lose(reason)

    def cut(self, reason: str) -> None:
        """End it at once."""
        self.close(reason)

    def lose(self, reason: str) -> None:
        """End it at this end."""
        if not self.over:
            self.over = True
            self.reason = reason
            self._era += 1
            self.closed.set()
            for future in self._questions.values():
                if not future.done():
                    future.set_exception(StreamClosed(reason))
            self.on_lost()

    def break_off(self) -> None:
        """Lose the messages on their way from here, and all later ones."""
        self.other._era += 1

    def _post(self, kind: str, number: int, message: Any) -> None:
        if self.over:
            raise StreamClosed(f"the stream to {self.peer} has ended: {self.reason}")
        wires, other = self.wires, self.other
        loop = wires.loop
        self._last = max(self._last + 1e-6, loop.now + wires.delay() + self.slow, self.opened_at)
        loop.at(self._last, other.node.context, other._arrive, other._era, kind, number, message)

    def _arrive(self, era: int, kind: str, number: int, message: Any) -> None:
        if self.over or era != self._era:
            return
        wires = self.wires
        if wires.trace and kind != "end":
            wires.trace(f"{self.peer} > {self.node.name}: {kind} {message}")
        if kind in ("tell", "ask"):
            self._deliver(number, message)
        elif kind == "end":
            self.lose(message)
        else:
            future = self._questions.get(number)
            if future and not future.done():
                if kind == "reply":
                    future.set_result(message)
                else:
                    future.set_exception(RemoteError(message))

    def _deliver(self, number: int, message: Any) -> None:
        reply = self._on_message(self, message)
        if inspect.isawaitable(reply):
            asyncio.get_running_loop().create_task(self._post_reply_later(number, reply))
        elif number:
            self._post_reply(number, reply)

    async def _post_reply_later(self, number: int, reply: Awaitable[Any]) -> None:
        answer = await reply
        if number:
            self._post_reply(number, answer)

    def _post_reply(self, number: int, answer: Any) -> None:
        if not self.over:
            self._post("reply", number, answer)


class SimListener(Listener):
    """Accepts streams."""

    def __init__(
        self, wires: Wires, name: str, on_message: OnMessage, on_open: Opened | None
    ) -> None:
        self.wires = wires
        self.node = this_node()
        self.name = name
        self.on_message = on_message
        self.address = wires.address()
        self._accepted: dict[Stream, None] = {}
        self._opened = on_open

    @property
    def streams(self) -> Collection[Stream]:
        """The streams that are open, in the order in which they came."""
        return self._accepted

    async def __aenter__(self) -> Self:
        self.wires.listeners[self.address] = self
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.wires.listeners.pop(self.address, None)
        for stream in list(self._accepted):
            stream.close("the listener stops")

    def take(self, stream: SimStream) -> None:
        """Accept a stream."""
        if stream.over:
            return
        self._accepted[stream] = None
        stream.on_lost = lambda: self._accepted.pop(stream, None)
        if self._opened:
            self._opened(stream)


async def _connect(
    wires: Wires, address: str, on_message: OnMessage, name: str, on_open: Opened | None
) -> Stream:
    node, loop = this_node(), wires.loop
    await asyncio.sleep(wires.delay())
    listener = wires.listeners.get(address)
    if listener is None or listener.node.dead:
        raise CannotConnect(f"{address}: nobody is there")
    if not wires.between(node.name, listener.node.name):
        await asyncio.sleep(HANDSHAKE)
        raise CannotConnect(f"{address}: no answer in time")
    near = SimStream(wires, node, listener.name, on_message)
    far = SimStream(wires, listener.node, name, listener.on_message)
    near.other, far.other = far, near
    if node.name[0] == listener.node.name[0]:
        # A copy from one configurator to another: real ones are large, so work goes on meanwhile.
        near.slow = far.slow = loop.random.choice(COPY_DELAYS)
    wires.streams.append(near)
    opened = loop.create_future()

    def accept() -> None:
        """Open the stream at the listener."""
        if far.over:
            return
        far.opened_at = loop.now + wires.delay() + wires.delay()
        loop.at(far.opened_at - 1e-7, node.context, open)
        listener.take(far)

    def open() -> None:
        """Open the stream here, before any message arrives."""
        if opened.done():
            return
        if on_open and not near.over:
            on_open(near)
        opened.set_result(None)

    loop.at(loop.now + wires.delay(), listener.node.context, accept)
    try:
        async with asyncio.timeout(HANDSHAKE):
            await opened
    except TimeoutError:
        near.over = True
        loop.at(loop.now, NOWHERE, wires.cut, near, "no handshake in time")
        raise CannotConnect(f"{address}: no answer in time") from None
    return near
