"""Which switches a southbound process is responsible for, beside the other southbound processes.

A process is responsible for switches that are connected to it, or to no process at all. All that
are registered compute the same shares from what is stored in etcd (`assignment.py`); the switch
itself obeys the process that claimed it with the highest generation.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

from configurators.southbound.assignment import assign, remaining
from configurators.southbound.connection_publisher import ConnectionPublisher
from configurators.southbound.reporter import Reporter
from configurators.southbound.request_handler import RequestHandler
from configurators.state.wanted import read_count
from configurators.store.documents import BadDocument, decode_connections, decode_process
from configurators.store.etcd.client import Etcd, StoreUnavailable
from configurators.store.keys import CONNECTIONS, GENERATION, SOUTHBOUND, wanted_key
from configurators.store.mirror import Mirror
from configurators.store.model import Connections
from configurators.store.registration import Registration
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

RECLAIM, LONGEST_RECLAIM = 1.0, 30.0  # seconds before a lost switch is claimed back
_NOTHING = Connections()
SETTLE = 0.3  # seconds in which several processes notice that a switch has come or gone


class Responsibility:
    """Keeps a request handler responsible for this process's share of the switches.

    If switches do not fence these processes from each other (`exclusive`), one has all switches.
    `know_network` returns when this process has taken up the network that is stored when it is
    called: in an older one, a number of a group may be that of another host.
    """

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        handler: RequestHandler,
        reporter: Reporter,
        publisher: ConnectionPublisher,
        switches: Iterable[str],
        exclusive: bool = False,
        know_network: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._handler = handler
        self._reporter = reporter
        self._publisher = publisher
        self._switches = list(switches)  # of the network
        self._exclusive = exclusive
        self._know_network = know_network
        self._alive: set[str] = set()  # the southbound processes that are registered
        self._wanted: int | None = None  # how many there should be
        self._generation = 0
        self._changing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._others_changed = asyncio.Event()  # other processes, or what they hold
        self._settling: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks()
        self._reclaiming = False
        self._reclaim_after = RECLAIM
        self._registration: Registration | None = None
        self._processes = Mirror(etcd, SOUTHBOUND, bytes, self._process_changed)
        self._connections: Mirror[Connections] = Mirror(
            etcd, CONNECTIONS, decode_connections, self._connections_changed
        )
        self._count = Mirror(etcd, wanted_key("southbound"), bytes, self._wanted_changed)

    async def run(self, registration: Registration) -> None:
        """Keep the right share, and tell the others what they need to know, until cancelled."""
        self._registration = registration
        try:
            # Before the processes: a process that does not know the connections of the others
            # would take switches from them. They may be newer than the processes, never older.
            connections, count = await self._connections.refresh(), await self._count.refresh()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._connections.run(connections))
                group.create_task(self._count.run(count))
                group.create_task(self._processes.run())
                group.create_task(self._share_on_changes())
                group.create_task(self._publisher.run(registration))
        finally:
            if self._settling:
                self._settling.cancel()
            await self._tasks.cancel()

    def set_switches(self, switches: Iterable[str]) -> None:
        """Share out these switches soon: the network has changed.

        The caller does not wait for that: a claim waits until a newer network is taken up.
        """
        self._switches = list(switches)
        self._changed.set()

    async def release_all(self) -> None:
        """Give up all switches, until this process is registered again."""
        async with self._changing:
            self._alive.discard(self._me)
            self._hold(())
            self._reporter.send()

    async def hand_over(self, within: float) -> None:
        """Have other processes take the switches that are connected to them, too, before the end.

        Returns when they have, or after so many seconds. Switches that are connected to this
        process alone stay until it ends.
        """
        before = self._handler.switches
        self._publisher.leave()
        try:
            async with asyncio.timeout(within):
                while not self._is_handed_over(before):
                    self._others_changed.clear()
                    await self._others_changed.wait()
        except TimeoutError:
            log.warning("%s ends before it has handed over its switches", self._me)
        log.info("%s ends with %d switches", self._me, len(self._handler.switches))

    def _is_handed_over(self, before: Iterable[str]) -> bool:
        """Whether all switches of before have another process, or cannot have one now."""
        if self._alive <= {self._me}:
            return True
        published = self._connections.values
        if not published.get(self._me, _NOTHING).leaving:
            return False
        taken = {s for one in published if one != self._me for s in published[one].held}
        return taken.union(self._share()) >= set(before).intersection(self._switches)

    def switch_lost(self, switch: str) -> None:
        """Claim a switch back later, if it is still this process's: another one has claimed it."""
        if switch in self._handler.switches:
            self._reclaim_later()

    def switch_came(self) -> None:
        """Claim lost switches back quickly again: a switch has come up."""
        self._reclaim_after = RECLAIM

    def connection_changed(self) -> None:
        """Tell the others: a switch has connected to this process, or its connection is lost."""
        self._publisher.schedule()

    # What etcd has

    def _process_changed(self, name: str, stored: bytes | None, revision: int) -> None:
        self._others_changed.set()
        if stored is None:
            self._alive.discard(name)
        else:
            self._alive.add(name)
            if name == self._me:
                self._registration_seen(stored, revision)
        self._changed.set()

    def _registration_seen(self, stored: bytes, revision: int) -> None:
        assert self._registration
        try:
            process = decode_process(stored)
        except BadDocument as error:
            log.error("%s%s cannot be read: %s", SOUTHBOUND, self._me, error)
            return
        if not self._registration.observe(process, revision):
            # Another process has this id: it, and not this one, may claim the switches.
            self._alive.discard(self._me)
        self._publisher.schedule()

    def _wanted_changed(self, _: str, stored: bytes | None, revision: int) -> None:  # noqa: ARG002
        self._wanted = read_count(stored)
        self._changed.set()

    def _connections_changed(self, *_: object) -> None:
        """Share again soon: when a switch restarts, all processes say so within a short time."""
        self._others_changed.set()
        if self._settling is None:
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(SETTLE, self._settled)

    def _settled(self) -> None:
        self._settling = None
        self._changed.set()

    # Claiming and releasing

    async def _share_on_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._share_again()

    async def _share_again(self) -> None:
        """Claim the switches that are this process's by now, and release the others."""
        async with self._changing:
            if self._me not in self._alive:
                return  # keep the switches until another process claims them
            ours = self._share()
            before = self._handler.switches
            if before - ours:
                self._hold(before & ours)
                self._reporter.send()  # at once: a switch that comes back later counts as new
            if ours - before:
                await self._claim(ours)
            self._reporter.schedule()

    def _share(self) -> frozenset[str]:
        if self._exclusive:
            stay = remaining(self._alive, self._connections.values, self._wanted)
            alone = self._me == min(stay)
            return frozenset(self._switches if alone else ())
        found = assign(self._switches, self._alive, self._connections.values, self._wanted)
        return frozenset(switch for switch, process in found.items() if process == self._me)

    def _hold(self, switches: Iterable[str]) -> None:
        self._handler.set_switches(switches, self._generation)
        self._publisher.schedule()

    async def _claim(self, switches: frozenset[str]) -> None:
        """Claim switches with a generation above all that were given before."""
        try:
            self._generation = await self._etcd.put(GENERATION, self._me.encode())
            if self._know_network:
                await self._know_network()
        except StoreUnavailable as error:
            log.warning("switches cannot be claimed yet: %s", error)
            self._reclaim_later()
            return
        log.info("%s is responsible for %d switches", self._me, len(switches))
        self._reporter.send()  # before: a switch that was lost and is claimed back counts as new
        self._hold(switches)

    def _reclaim_later(self) -> None:
        if not self._reclaiming:
            self._reclaiming = True
            self._tasks.spawn(self._reclaim(), "claim switches back")

    async def _reclaim(self) -> None:
        """Claim switches back from a process that did not know yet that they are not its own."""
        pause = self._reclaim_after * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        await asyncio.sleep(pause)
        self._reclaim_after = min(2 * self._reclaim_after, LONGEST_RECLAIM)
        self._reclaiming = False
        async with self._changing:
            if self._me in self._alive:
                await self._claim(self._handler.switches)
        await self._share_again()
