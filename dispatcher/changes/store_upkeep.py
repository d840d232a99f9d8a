"""Keeps etcd's database below its quota, and makes it usable again if it was reached all the same.

Every dispatcher looks how full the database is, and refuses new requests when it is too full. One
of them, the first in an order that all agree upon, compacts, defragments and makes room.
"""

import asyncio
import logging

from configurators.environment import Clock
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.room import (
    DISARM,
    RELIEVE,
    WARN,
    History,
    Level,
    Room,
    defragmentation_pays,
    describe,
    level,
)
from configurators.store.upkeep import read_room
from dispatcher.changes.retention import Retention
from dispatcher.errors import Unavailable
from dispatcher.knowledge.siblings import Siblings
from dispatcher.views import Compaction, StoreView

_log = logging.getLogger(__name__)

_EVERY = 2.0  # seconds
_COMPACT_EVERY = 30.0  # seconds: each time etcd goes through all keys
_RELIEVE_EVERY = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 600.0  # seconds between attempts to make room
_AWAY = 10.0  # seconds without an answer of etcd after which hosts may have missed to renew
_DUTY = "upkeep of etcd"
_HELP = (
    "remove subscriptions that are not needed, or give etcd a larger quota (etcd.quota;"
    " --quota-backend-bytes of an etcd of your own)"
)


class StoreUpkeep:
    """Looks after etcd's database."""

    def __init__(
        self,
        etcd: Etcd,
        siblings: Siblings,
        retention: Retention,
        quota: int,
        history: float,
        clock: Clock,
        every: float = _EVERY,
    ) -> None:
        self._etcd = etcd
        self._siblings = siblings
        self._retention = retention
        self._quota = quota
        self._clock = clock
        self._every = every
        self._room: Room | None = None
        self._level: Level = "normal"
        self._answered: float | None = None  # when etcd last told how full it is
        self._usable_since = float("-inf")
        self._history = History(history)
        self._working = asyncio.Lock()
        self._compacted = self._relieved = self._defragmented = self._recovered = float("-inf")
        self._pause = _FIRST_PAUSE
        self._trouble = ""

    async def run(self) -> None:
        """Look after it until cancelled."""
        while True:
            try:
                await self.attend()
                self._trouble = ""
            except StoreError as error:
                if str(error) != self._trouble:
                    _log.warning("etcd is not compacted, retrying: %s", error)
                self._trouble = str(error)
            await asyncio.sleep(self._every)

    async def attend(self) -> None:
        """Look how full the database is; if this dispatcher is the one to do so, make room."""
        await self._look()
        if not self._siblings.is_first_for(_DUTY) or self._room is None:
            return
        async with self._working:
            now = self._clock.monotonic()
            if self._level == "full":
                if now >= self._recovered + self._pause:
                    await self._recover()
                return
            await self._compact_history(now)
            nearly_full = self._room.in_use >= RELIEVE * self._quota
            if nearly_full and now >= self._relieved + _RELIEVE_EVERY:
                self._relieved = now
                await self._relieve()
            if defragmentation_pays(self._room, self._quota, now - self._defragmented):
                await self._defragment()

    def refuse_if_full(self) -> None:
        """Refuse a new request (Unavailable) if there may be no room for it."""
        if self._level in ("refusing", "full"):
            raise Unavailable(f"{self.warning}; nothing was stored", 5.0, "store-full")

    @property
    def full(self) -> bool:
        """Whether nothing can be written."""
        return self._level == "full"

    @property
    def usable_since(self) -> float:
        """The monotonic time since when etcd has accepted writes; inf if it does not now."""
        return float("inf") if self.full or self._is_away() else self._usable_since

    @property
    def warning(self) -> str | None:
        """What operators should know, if anything."""
        if self._level == "normal" or self._room is None:
            return None
        state = describe(self._room, self._quota)
        if self._level == "high":
            return f"etcd's database has {state}; at the quota nothing can be written: {_HELP}"
        if self._level == "refusing":
            return f"etcd's database has {state}; requests that need room are refused: {_HELP}"
        return f"etcd's database has reached its quota: {state}; room is being made"

    def view(self) -> StoreView | None:
        """How full the database is, and how much of it may be removed; None if not known."""
        if self._room is None:
            return None
        finished, keys = self._retention.kept("finished"), self._retention.kept("keys")
        return StoreView(
            self._room.size,
            self._room.in_use,
            self._quota,
            self._level,
            finished.keys,
            finished.bytes,
            keys.keys,
            keys.bytes,
        )

    async def compact(self) -> Compaction:
        """Compact and defragment now; make room, if the quota was reached."""
        async with self._working:
            before = await self._look()
            if before.full:
                await self._recover()
            else:
                await self._squeeze()
            after = await self._look()
        return Compaction(
            before.size, before.in_use, after.size, after.in_use, self._quota, after.full
        )

    # What is done

    async def _look(self) -> Room:
        room = await read_room(self._etcd)
        if self._level == "full" and not room.full:
            # Requests are refused until this is written.
            await self._retention.announce()
        now = self._clock.monotonic()
        if self._is_away() or (self._level == "full" and not room.full):
            self._usable_since = now
        self._answered = now
        before, self._level, self._room = self._level, level(room, self._quota), room
        if self._level == before:
            return room
        if self._level == "normal":
            _log.warning("etcd has room again: %s", describe(room, self._quota))
        else:
            severity = logging.WARNING if self._level == "high" else logging.ERROR
            _log.log(severity, "%s", self.warning)
        return room

    def _is_away(self) -> bool:
        return self._answered is not None and self._clock.monotonic() > self._answered + _AWAY

    async def _compact_history(self, now: float) -> None:
        if now < self._compacted + _COMPACT_EVERY:
            return
        target = self._history.note(now, await self._etcd.maintenance.revision())
        if target:
            await self._etcd.maintenance.compact(target)
        self._compacted = now

    async def _relieve(self) -> None:
        """Remove all that may be removed, before the quota is reached.

        The next compactions free the space, when what was removed is older than `etcd.history`.
        """
        groups = [*self._retention.removable("finished"), *self._retention.removable("keys")]
        if groups:
            _log.warning(
                "etcd's database is nearly full: finished records and idempotency keys of more than"
                " ten minutes are removed (%d groups)",
                len(groups),
            )
            await self._retention.remove(groups)

    async def _recover(self) -> None:
        """Make room after the quota was reached: deletions are still possible."""
        now = self._clock.monotonic()
        calm = now - self._recovered > 2 * _LONGEST_PAUSE
        self._pause = _FIRST_PAUSE if calm else min(2 * self._pause, _LONGEST_PAUSE)
        self._recovered = now
        if (await self._look()).size < WARN * self._quota:
            _log.warning("set etcd.quota to what etcd's members have: they have less than it says")
        removed = await self._remove_until_enough()
        await self._defragment()
        room = await self._look()
        if room.size >= DISARM * self._quota:
            _log.error("no more room can be made in etcd's database; %s", _HELP)
            return
        await self._etcd.maintenance.disarm()
        await self._look()
        _log.warning("etcd accepts writes again; removed to make room: %s", removed)

    async def _remove_until_enough(self) -> str:
        """Remove history, then finished records, the older half first; what was removed."""
        if await self._compact_enough():
            return "history"
        finished = self._retention.groups("finished")
        half = (len(finished) + 1) // 2
        await self._retention.remove([*finished[:half], *self._retention.removable("keys")])
        if await self._compact_enough():
            return "the older half of all finished records, and idempotency keys of ten minutes ago"
        await self._retention.remove(finished[half:])
        await self._retention.remove_all_finished()
        await self._compact_enough()
        return "all finished records, and idempotency keys of ten minutes ago"

    async def _compact_enough(self) -> bool:
        await self._compact_all()
        return (await self._look()).in_use < WARN * self._quota

    async def _squeeze(self) -> None:
        """Drop all history, and give the space back."""
        await self._compact_all()
        await self._defragment()

    async def _compact_all(self) -> None:
        maintenance = self._etcd.maintenance
        await maintenance.compact(await maintenance.revision(), physical=True)

    async def _defragment(self) -> None:
        began = self._clock.monotonic()
        self._defragmented = began  # also if it fails: it blocks members
        await self._etcd.maintenance.defragment()
        room = await self._look()
        _log.info(
            "etcd was defragmented in %.1f s: %s",
            self._clock.monotonic() - began,
            describe(room, self._quota),
        )
