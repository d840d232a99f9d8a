"""Streams to configurators and southbound processes, and what these processes report."""

import logging
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from configurators.store.etcd.client import Etcd
from configurators.store.keys import CONFIGURATORS, SOUTHBOUND
from configurators.streams.listener import Connect, connect
from configurators.streams.messages import (
    Dones,
    FoundHosts,
    FoundNetwork,
    FromConfigurator,
    FromSouthbound,
    Load,
    SouthboundCounters,
    SwitchReport,
    Take,
    Waiting,
)
from configurators.streams.peers import Peers
from configurators.streams.stream import Stream
from dispatcher.knowledge.signals import Signal
from sdn.network.topology import Link

_log = logging.getLogger(__name__)


class Fleet:
    """Streams to all configurators and southbound processes, and the last report of each."""

    def __init__(self, etcd: Etcd, token: bytes, me: str, connect: Connect = connect) -> None:
        self.loads: dict[str, Load] = {}
        self.switch_reports: dict[str, SwitchReport] = {}
        self.southbound_counters: dict[str, SouthboundCounters] = {}
        self.found: dict[str, FoundNetwork] = {}
        self.hosts: dict[str, FoundHosts] = {}
        self.tasks_done: Signal[Dones, str] = Signal()
        """Emitted with the answers to tasks, and the id of the configurator."""
        self.tasks_waiting: Signal[Waiting] = Signal()
        self.tasks_wanted: Signal[Stream, Take] = Signal()
        """Emitted when a configurator takes tasks that were offered."""
        self.connected: Signal[str] = Signal()
        """Emitted with the id of a configurator to which a stream is open now."""
        self.disconnected: Signal[Stream] = Signal()
        self.configurator_changed: Signal[str] = Signal()
        """Emitted with the id of a configurator that came, went, or has sent its load."""
        self.switches_changed: Signal[()] = Signal()
        """Emitted when southbound processes come, go, or report which switches they have."""
        self.found_changed: Signal[()] = Signal()
        """Emitted when southbound processes report what they have found of the network."""
        self.hosts_changed: Signal[()] = Signal()
        """Emitted when southbound processes report which hosts they have heard."""
        self.registrations_changed: Signal[()] = Signal()
        """Emitted when a configurator or southbound process was registered, or is gone."""
        self.configurators = Peers(
            etcd,
            CONFIGURATORS,
            token,
            self._received,
            FromConfigurator,
            self._configurator_connected,
            self._configurator_disconnected,
            name=me,
            on_change=self._configurators_changed,
            connect=connect,
        )
        self.southbound = Peers(
            etcd,
            SOUTHBOUND,
            token,
            self._received,
            FromSouthbound,
            on_close=self._southbound_disconnected,
            name=me,
            on_change=self._southbound_changed,
            connect=connect,
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

    async def refresh(self) -> None:
        """Read now which configurators and southbound processes are registered."""
        await self.configurators.refresh()
        await self.southbound.refresh()

    def stream_to(self, configurator: str) -> Stream | None:
        """The stream to a configurator, if there is one at the moment."""
        return self.configurators[configurator]

    def switch_holder(self, switch: str) -> str | None:
        """The southbound process that has the connection of a switch, as far as is known."""
        for name, report in self.switch_reports.items():
            if switch in report.switches and self.southbound[name] is not None:
                return name
        return None

    def found_links(self) -> frozenset[Link] | None:
        """The links that southbound processes have found; None if none looks for links."""
        if not self.found:
            return None
        return frozenset(link for report in self.found.values() for link in report.links)

    def _received(self, stream: Stream, message: FromConfigurator | FromSouthbound) -> None:
        if isinstance(message, Dones):
            self.tasks_done.emit(message, stream.peer)
        elif isinstance(message, Waiting):
            self.tasks_waiting.emit(message)
        elif isinstance(message, Take):
            self.tasks_wanted.emit(stream, message)
        elif isinstance(message, Load):
            self.loads[message.configurator] = message
            self.configurator_changed.emit(message.configurator)
        elif isinstance(message, SwitchReport):
            self.switch_reports[message.southbound] = message
            self.switches_changed.emit()
        elif isinstance(message, FoundNetwork):
            self.found[message.southbound] = message
            self.found_changed.emit()
        elif isinstance(message, FoundHosts):
            self.hosts[message.southbound] = message
            self.hosts_changed.emit()
        elif isinstance(message, SouthboundCounters):
            self.southbound_counters[message.southbound] = message
        else:
            _log.warning("%s has sent a message that nobody expects: %r", stream.peer, message)

    def _configurator_connected(self, id: str, stream: Stream) -> None:  # noqa: ARG002
        self.connected.emit(id)
        self.configurator_changed.emit(id)

    def _configurator_disconnected(self, id: str, stream: Stream) -> None:
        self.loads.pop(id, None)
        self.disconnected.emit(stream)
        self.configurator_changed.emit(id)

    def _southbound_disconnected(self, id: str, stream: Stream) -> None:  # noqa: ARG002
        self.switch_reports.pop(id, None)
        self.southbound_counters.pop(id, None)
        self.found.pop(id, None)
        self.hosts.pop(id, None)
        self.switches_changed.emit()

    def _configurators_changed(self) -> None:
        known = set(self.configurators.processes)
        for id in known ^ self._known:
            self.configurator_changed.emit(id)
        self._known = known
        self.registrations_changed.emit()

    def _southbound_changed(self) -> None:
        self.switches_changed.emit()
        self.registrations_changed.emit()
