"""Leadership: of all monitors, one acts at a time.

Every API process has a monitor, and every monitor competes for the key `leader` in etcd. The one
that has put it leads, for as long as the lease of the key lives. The key is never put twice, so the
revision of its put names the term. Each write of a leader compares it: what an earlier leader tries
to write after its term, because it was paused, say, has no effect.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from configurators.store.etcd.client import (
    Compare,
    Etcd,
    Get,
    Lease,
    LeaseGone,
    Put,
    StoreError,
    absent,
    unchanged,
)
from configurators.store.keys import LEADER
from configurators.store.mirror import Snapshot, Update, follow
from dzflow.errors import DzflowError

log = logging.getLogger(__name__)

TTL = 5  # seconds without a sign of life after which another monitor leads
_RETRY = 0.5


class NotLeading(DzflowError):
    """Another monitor leads; it is the one to act."""


class Leadership:
    """Competes for the leadership while `run` runs. `me` is the id of the API process.

    `on_change` is called with the process that leads, as far as is known, when it changes.
    """

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        ttl: int = TTL,
        on_change: Callable[[str | None], None] | None = None,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._ttl = ttl
        self._on_change = on_change
        self._known: str | None = None  # who leads, according to etcd
        self._term = 0  # the revision of this process's key; 0: it does not lead
        self._lease: Lease | None = None  # of this term
        self._gained = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()

    @property
    def leads(self) -> bool:
        """Whether this process leads for certain, unless the key was deleted by hand."""
        return self._lease is not None and self._lease.alive

    @property
    def leader(self) -> str | None:
        """The process that leads, as far as is known."""
        expired = self._lease is not None and not self._lease.alive
        return None if expired else self._known

    def fence(self) -> Compare:
        """The comparison of every transaction that only the leader may carry out.

        NotLeading if this process does not lead. It holds in etcd for as long as the term lasts.
        """
        if not self.leads:
            other = f"{self.leader} does: ask there" if self.leader else "nobody does at present"
            raise NotLeading(f"{self._me} does not lead; {other}, or try again later")
        return unchanged(LEADER, self._term)

    async def wait_gained(self) -> None:
        """Return when this process leads."""
        await self._gained.wait()

    async def wait_lost(self) -> None:
        """Return when this process does not lead."""
        await self._lost.wait()

    async def run(self) -> None:
        """Compete until cancelled; then another process can lead at once."""
        while True:
            try:
                async with self._etcd.lease(self._ttl) as lease:
                    try:
                        await self._compete(lease)
                    finally:
                        self._lose("its lease has ended")
            except StoreError as error:
                log.warning("%s cannot compete for the leadership, retrying: %s", self._me, error)
            await asyncio.sleep(_RETRY)

    async def _compete(self, lease: Lease) -> None:
        """Lead whenever nobody else does, until the lease is lost."""
        following = asyncio.create_task(self._follow(lease), name="follow the leader")
        ending = asyncio.create_task(lease.lost.wait(), name="end of the leader's lease")
        try:
            await asyncio.wait((following, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (following, ending):
                task.cancel()
            results = await asyncio.gather(following, ending, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _follow(self, lease: Lease) -> None:
        async with aclosing(follow(self._etcd, LEADER)) as updates:
            async for update in updates:
                self._observe(update)
                if self._known is None:
                    await self._try(lease)

    def _observe(self, update: Update) -> None:
        """Note who leads, unless that is older than this process's term."""
        changes = [change for change in update.changes if not change.name]
        if update.revision < self._term or not (changes or isinstance(update, Snapshot)):
            return
        newest = changes[-1] if changes else None
        if newest and newest.revision <= self._term:
            return
        self._know(newest.value.decode() if newest and newest.value is not None else None)
        self._lose("its key was deleted")

    async def _try(self, lease: Lease) -> None:
        """Put the key, if there is none."""
        put = Put(LEADER, self._me.encode(), lease.id)
        while lease.alive:
            try:
                result = await self._etcd.transact([absent(LEADER)], [put], [Get(LEADER)])
            except LeaseGone:
                return  # a new lease follows
            except StoreError as error:
                log.warning("%s cannot get the leadership, retrying: %s", self._me, error)
                await asyncio.sleep(_RETRY)
                continue
            found = result.gets[0][0] if not result.succeeded else None
            if found and found.lease != lease.id:
                self._know(found.value.decode())
            else:
                # Or the key is there from an attempt whose answer was lost.
                self._gain(found.revision if found else result.revision, lease)
            return

    def _gain(self, term: int, lease: Lease) -> None:
        log.info("%s leads: its monitor acts from now on", self._me)
        self._term, self._lease = term, lease
        self._know(self._me)
        self._lost.clear()
        self._gained.set()

    def _lose(self, reason: str) -> None:
        if self._lease is None:
            return
        log.warning("%s does not lead any more: %s", self._me, reason)
        self._term, self._lease = 0, None
        if self._known == self._me:
            self._know(None)
        self._gained.clear()
        self._lost.set()

    def _know(self, leader: str | None) -> None:
        if leader != self._known:
            self._known = leader
            if self._on_change:
                self._on_change(leader)
