"""Which switches a southbound process is responsible for, beside the other southbound processes.

Each switch connects to all of them. Those that are registered in etcd compute the same share for
each; the switch itself obeys the process that claimed it with the highest generation.
"""

import asyncio
import logging
import random
from collections.abc import Iterable

from configurators.southbound.rendezvous import share
from configurators.southbound.reporter import Reporter
from configurators.southbound.request_handler import RequestHandler
from configurators.store.documents import BadDocument, decode_process
from configurators.store.etcd.client import Etcd, StoreUnavailable
from configurators.store.keys import GENERATION, SOUTHBOUND
from configurators.store.mirror import KeyChange, Snapshot, follow
from configurators.store.registration import Registration
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

RECLAIM, LONGEST_RECLAIM = 1.0, 30.0  # seconds before a lost switch is claimed back


class Responsibility:
    """Keeps a request handler responsible for this process's share of the switches.

    If the data plane knows no masters (`exclusive`), one process alone has all switches.
    """

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        handler: RequestHandler,
        reporter: Reporter,
        switches: Iterable[str],
        exclusive: bool = False,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._handler = handler
        self._reporter = reporter
        self._switches = list(switches)  # of the network
        self._exclusive = exclusive
        self._alive: set[str] = set()  # the southbound processes that are registered
        self._generation = 0
        self._changing = asyncio.Lock()
        self._tasks = BackgroundTasks()
        self._reclaiming = False
        self._reclaim_after = RECLAIM

    async def run(self, registration: Registration) -> None:
        """Follow which southbound processes are alive, until cancelled."""
        try:
            async for update in follow(self._etcd, SOUTHBOUND):
                if isinstance(update, Snapshot):
                    self._alive = set()
                for change in update.changes:
                    self._process_changed(change, registration)
                await self._share_again()
        finally:
            await self._tasks.cancel()

    async def set_switches(self, switches: Iterable[str]) -> None:
        """Share out these switches: the network has changed."""
        self._switches = list(switches)
        await self._share_again()

    async def release_all(self) -> None:
        """Give up all switches, until this process is registered again."""
        async with self._changing:
            self._alive.discard(self._me)
            self._handler.set_switches((), self._generation)
            self._reporter.send()

    def switch_lost(self, switch: str) -> None:
        """Claim a switch back later, if it is still this process's: another one has claimed it."""
        if switch in self._handler.switches:
            self._reclaim_later()

    def switch_came(self) -> None:
        """Claim lost switches back quickly again: a switch has come up."""
        self._reclaim_after = RECLAIM

    def _process_changed(self, change: KeyChange, registration: Registration) -> None:
        if change.value is None:
            self._alive.discard(change.name)
            return
        self._alive.add(change.name)
        if change.name == self._me:
            try:
                process = decode_process(change.value)
            except BadDocument as error:
                log.error("%s%s cannot be read: %s", SOUTHBOUND, self._me, error)
                return
            if not registration.observe(process, change.revision):
                # Another process has this id: it, and not this one, may claim the switches.
                self._alive.discard(self._me)

    async def _share_again(self) -> None:
        """Claim the switches that are this process's by now, and release the others."""
        async with self._changing:
            if self._me not in self._alive:
                return  # keep the switches until another process claims them
            if self._exclusive:
                ours = frozenset(self._switches if self._me == min(self._alive) else ())
            else:
                ours = share(self._switches, self._alive, self._me)
            before = self._handler.switches
            if before - ours:
                self._handler.set_switches(before & ours, self._generation)
                self._reporter.send()  # at once: a switch that comes back later counts as new
            if ours - before:
                await self._claim(ours)
            self._reporter.schedule()

    async def _claim(self, switches: frozenset[str]) -> None:
        """Claim switches with a generation above all that were given before."""
        try:
            self._generation = await self._etcd.put(GENERATION, self._me.encode())
        except StoreUnavailable as error:
            log.warning("switches cannot be claimed yet: %s", error)
            self._reclaim_later()
            return
        log.info("%s is responsible for %d switches", self._me, len(switches))
        self._reporter.send()  # before: a switch that was lost and is claimed back counts as new
        self._handler.set_switches(switches, self._generation)

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
