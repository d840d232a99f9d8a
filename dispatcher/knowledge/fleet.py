"""The other processes: streams to configurators and southbound processes, and what they tell."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from configurators.store.etcd.client import Etcd
from configurators.store.keys import CONFIGURATORS, SOUTHBOUND
from configurators.streams.messages import (
    Dones,
    FromConfigurator,
    FromSouthbound,
    Load,
    SwitchReport,
    Take,
    Waiting,
)
from configurators.streams.peers import Peers
from configurators.streams.stream import Stream

_log = logging.getLogger(__name__)


class Fleet:
    """Streams to all processes, and the last that each has told. Functions in `on_…` are called
    when something was told or changed."""

    def __init__(self, etcd: Etcd, token: bytes, me: str) -> None:
        self.loads: dict[str, Load] = {}
        self.holds: dict[str, SwitchReport] = {}
        self.on_dones: Callable[[Dones, str], None] = lambda *_: None
        self.on_waiting: Callable[[Waiting], None] = lambda _: None
        self.on_take: Callable[[Stream, Take], None] = lambda *_: None
        self.on_connected: Callable[[str], None] = lambda _: None
        self.on_disconnected: Callable[[Stream], None] = lambda _: None
        self.on_configurator: list[Callable[[str], None]] = []
        self.on_holds: list[Callable[[], None]] = []
        self.configurators = Peers(
            etcd,
            CONFIGURATORS,
            token,
            self._hear,
            FromConfigurator,
            self._opened,
            self._closed,
            name=me,
            on_change=self._registered,
        )
        self.southbound = Peers(
            etcd,
            SOUTHBOUND,
            token,
            self._hear,
            FromSouthbound,
            on_close=self._lost,
            name=me,
            on_change=self._tell_holds,
        )
        self._stack = AsyncExitStack()
        self._known: set[str] = set()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.configurators)
            await stack.enter_async_context(self.southbound)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def stream_to(self, configurator: str) -> Stream | None:
        """The stream to a configurator, if there is one at the moment."""
        return self.configurators[configurator]

    def switch_holder(self, switch: str) -> str | None:
        """The southbound process that has a switch, as far as is known."""
        for name, holds in self.holds.items():
            if switch in holds.switches and self.southbound[name] is not None:
                return name
        return None

    def _hear(self, stream: Stream, message: object) -> None:
        if isinstance(message, Dones):
            self.on_dones(message, stream.peer)
        elif isinstance(message, Waiting):
            self.on_waiting(message)
        elif isinstance(message, Take):
            self.on_take(stream, message)
        elif isinstance(message, Load):
            self.loads[message.configurator] = message
            self._tell_configurator(message.configurator)
        elif isinstance(message, SwitchReport):
            self.holds[message.southbound] = message
            self._tell_holds()
        else:
            _log.warning("%s told something that nobody asked for: %r", stream.peer, message)

    def _opened(self, name: str, stream: Stream) -> None:  # noqa: ARG002 - called with both
        self.on_connected(name)
        self._tell_configurator(name)

    def _closed(self, name: str, stream: Stream) -> None:
        self.loads.pop(name, None)
        self.on_disconnected(stream)
        self._tell_configurator(name)

    def _lost(self, name: str, stream: Stream) -> None:  # noqa: ARG002 - called with both
        self.holds.pop(name, None)
        self._tell_holds()

    def _registered(self) -> None:
        known = set(self.configurators.processes)
        for name in known ^ self._known:
            self._tell_configurator(name)
        self._known = known

    def _tell_configurator(self, name: str) -> None:
        for tell in self.on_configurator:
            tell(name)

    def _tell_holds(self) -> None:
        for tell in self.on_holds:
            tell()
