"""Stores in etcd which switches are connected to a southbound process, for the others."""

import asyncio
import logging
from collections.abc import Callable, Collection

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.southbound.stable_connections import StableConnections
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import CONNECTIONS
from configurators.store.model import Connections
from configurators.store.registration import Registration
from dzflow.aio import OncePerTurn, wait_until_set

log = logging.getLogger(__name__)

PAUSE = 0.5  # seconds between two writes, at least

Switches = Callable[[], Collection[str]]


class ConnectionPublisher:
    """Publishes the connections of this process that count, and the switches that it holds.

    `attached` gives the switches that are connected now, `held` those that the process is
    responsible for. A process that was restarted leaves what it published before for `stable_after`
    seconds: its switches need time to connect again, and would be given to others otherwise.
    """

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        attached: Switches,
        held: Switches,
        clock: Clock,
        stable_after: float,
        longest: float,
    ) -> None:
        self._etcd = etcd
        self._key = CONNECTIONS + me
        self._attached = attached
        self._held = held
        self._clock = clock
        self._stable_after = stable_after
        self._connections = StableConnections(stable_after, longest)
        self._leaving = False
        self._found = Connections()
        self._next_change: float | None = None  # when another connection counts, seen from `_found`
        self._published: tuple[int, Connections] | None = None  # under this registration
        self._changed = asyncio.Event()
        self._observing = OncePerTurn(self._observe)

    def schedule(self) -> None:
        """Publish soon: a switch has come or gone, or the registration has changed."""
        self._observing.schedule()

    def leave(self) -> None:
        """Publish from now on that this process is about to end."""
        self._leaving = True
        self._observe()

    async def run(self, registration: Registration) -> None:
        """Publish each change while the process is registered, until cancelled."""
        await registration.known.wait()
        await self._leave_former_alone()
        while True:
            await registration.known.wait()
            self._observe()
            self._changed.clear()
            found = registration.revision, self._found
            if found == self._published:
                await self._wait(self._next_change)
                continue
            try:
                await registration.put(self._key, encode(self._found))
                self._published = found
            except StoreError as error:
                log.warning("the connections of switches are not published yet: %s", error)
            await asyncio.sleep(PAUSE)

    def _observe(self) -> None:
        """Note what is connected now, so that no short loss is missed while nothing is written."""
        now = self._clock.monotonic()
        found = self._connections.observe(self._attached(), self._held(), now)
        self._found = replace(found, leaving=self._leaving)
        # By a later reading of the clock, a connection may be due that `_found` lacks.
        self._next_change = self._connections.next_change(now)
        self._changed.set()

    async def _leave_former_alone(self) -> None:
        """If a former process with the same id has published something, wait for a while."""
        try:
            former = await self._etcd.get(self._key)
        except StoreError as error:
            log.warning("it is not known which switches were connected before: %s", error)
            return
        if former:
            await asyncio.sleep(self._stable_after)

    async def _wait(self, until: float | None) -> None:
        """Wait for a change, or until a time."""
        left = None if until is None else max(0.0, until - self._clock.monotonic())
        await wait_until_set(self._changed, left)
