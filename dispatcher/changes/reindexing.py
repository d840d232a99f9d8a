"""Indexes the records of a space again, while they are in force.

Each record is updated to the filter that it has. The planner gives it the regions of the index as
it is now; partitions have the old and the new regions together for a moment, so that no event is
lost. These updates have a small window of their own beside the requests of users.
"""

import asyncio
import logging
from collections.abc import Sequence

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace
from configurators.store.etcd.client import Etcd
from configurators.store.etcd.errors import StoreUnavailable
from configurators.store.keys import RECORDS
from configurators.store.model import Record
from configurators.streams.packing import pack_regions
from dispatcher.errors import Failed, Problem, Unavailable
from dispatcher.requests.calls.followed import FollowedRecords
from dispatcher.requests.calls.pending_reply import PendingReply
from dispatcher.requests.intake.intake import Intake
from dispatcher.requests.operation import Operation
from dispatcher.requests.writing.stored_records import StoredRecord, scan
from dzflow.aio import PauseByTime
from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK

_log = logging.getLogger(__name__)

_WINDOW = 32  # records that are indexed again at the same time
_WAIT = 10.0  # seconds that one window may take; those that wait for a switch go on without it
_OTHERS_WAIT = 30.0  # seconds for operations that users have begun
_ROUNDS = 3


class Reindexing:
    """Indexes records again."""

    def __init__(self, etcd: Etcd, intake: Intake, followed: FollowedRecords, clock: Clock) -> None:
        self._etcd = etcd
        self._intake = intake
        self._followed = followed
        self._clock = clock

    async def index_all(self, space: LoadedSpace) -> None:
        """Give all records the regions that the space's index gives them now.

        New requests get them anyway: none is stored that was indexed in another way. Records that
        switches refuse keep their former regions, which hold all events that they want, too.
        StoreError if etcd does not take something.
        """
        refused: dict[str, str] = {}
        for _ in range(_ROUNDS):
            busy = await self._index_once(space, refused)
            if not busy:
                break
            wait = self._followed.wait_until
            await asyncio.gather(*(wait(id, _is_settled, _OTHERS_WAIT) for id in busy))
        if refused:
            text = "%d records of the space %s keep their former regions, such as %s: %s"
            _log.warning(text, len(refused), space.name, *next(iter(refused.items())))

    async def update(self, some: Sequence[StoredRecord], seconds: float) -> list[Problem | None]:
        """Index records again, and wait for it so long; the problem of each that has one."""
        reply = PendingReply(len(some))
        now = self._clock.monotonic()
        pause = PauseByTime(self._clock.monotonic)
        for place, stored in enumerate(some):
            if pause.due:
                await pause.let_others_run()
            filter, caller = stored.record.filter, reply.element(place)
            self._intake.force(Operation.update(stored, filter, now, caller, reindex=True))
        await reply.wait(seconds)
        return [answer.problem if answer else None for answer in reply.answers]

    async def _index_once(self, space: LoadedSpace, refused: dict[str, str]) -> list[str]:
        """Index again what has other regions; returns what others were changing.

        What switches refuse is added to `refused`, with the reason, and not tried again.
        """
        busy: list[str] = []
        window: list[StoredRecord] = []
        pause = PauseByTime(self._clock.monotonic)
        async for _, stored in scan(self._etcd, f"{RECORDS}{space.number:x}/"):
            if pause.due:
                await pause.let_others_run()
            record = stored.record
            if record.id in refused or _is_indexed(space, record):
                continue
            if record.open:
                busy.append(record.id)
                continue
            window.append(stored)
            if len(window) == _WINDOW:
                busy += await self._index_window(window, refused)
                window.clear()
        return busy + await self._index_window(window, refused)

    async def _index_window(
        self, window: Sequence[StoredRecord], refused: dict[str, str]
    ) -> list[str]:
        """Index some records again; returns those that others have changed meanwhile."""
        busy: list[str] = []
        problems = await self.update(window, _WAIT)
        for stored, problem in zip(window, problems, strict=True):
            if problem is None:
                continue
            if problem.status == Unavailable.status:
                raise StoreUnavailable(problem.detail)
            if problem.status == Failed.status:
                refused[stored.record.id] = problem.detail
            else:
                busy.append(stored.record.id)
        return busy


def _is_indexed(space: LoadedSpace, record: Record) -> bool:
    """Whether a record has, or is about to have, the regions that the index gives it now."""
    if record.state == "removing":
        return True
    filter, regions = record.filter, record.regions
    if record.next:
        filter, regions = record.next.filter, record.next.regions
    try:
        wanted = space.regions(filter, STORED_WORK)
    except BadInput as error:
        _log.error("%s cannot be indexed again: %s", record.id, error)
        return True
    return all(regions.get(version) == pack_regions(new) for version, new in wanted.items())


def _is_settled(record: Record) -> bool:
    return not record.open
