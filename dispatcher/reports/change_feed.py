"""Tells readers of the live stream what changes; each reader has its own bounded queue."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterator

from msgspec import Struct

from configurators.store.documents import BadDocument, decode_record
from configurators.store.etcd.client import Etcd, StoreUnavailable
from configurators.store.keys import FINISHED, RECORDS
from configurators.store.mirror import Changes, follow
from dispatcher.changes.host_proposals import HostProposals
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.workers import Workers
from dispatcher.reports.status import Status
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.writes import Write
from dispatcher.views import Change, ChangeType, NetworkSummary, Skipped, SpaceGone
from dzflow.aio import BackgroundTasks

_log = logging.getLogger(__name__)

_MOST = 10_000  # changes that may wait for a reader
_SAMPLED_EVERY = 1.0  # seconds for which `most` records are meant
_RETRY = 1.0  # seconds before the next attempt to watch


class _Reader:
    def __init__(
        self, types: Collection[ChangeType], host: str | None = None, most: int | None = None
    ) -> None:
        """`host`: only its records are wanted; `most`: at most so many records per second."""
        self.types = frozenset(types)
        self.host = host
        self.sampled = most is not None
        self._most = most
        self._admitted = 0  # records since the second began
        self._skipped = 0
        self._second: asyncio.TimerHandle | None = None
        self.queue: deque[Change] = deque()
        self.load: Change | None = None  # not in the queue: only the newest one counts
        self.woken = asyncio.Event()
        self.lagged = False

    def put(self, change: Change) -> None:
        if len(self.queue) >= _MOST:
            self.lagged = True
            self.queue.clear()
        if not self.lagged:
            self.queue.append(change)
        self.woken.set()

    def skips(self) -> bool:
        """Count a record as skipped, if the reader wants no more of them in this second."""
        if self._most is None or self._admitted < self._most:
            return False
        self._skipped += 1
        return True

    def put_record(self, change: Change) -> None:
        if self._most is not None:
            if self._second is None:
                loop = asyncio.get_running_loop()
                self._second = loop.call_later(_SAMPLED_EVERY, self._end_second)
            self._admitted += 1
        self.put(change)

    def _end_second(self) -> None:
        if self._skipped:
            self.put(Change("skipped", Skipped(self._skipped)))
        self._admitted = self._skipped = 0
        self._second = None

    def close(self) -> None:
        if self._second is not None:
            self._second.cancel()

    def put_load(self, change: Change) -> None:
        self.load = change
        self.woken.set()


class ChangeFeed:
    """Tells readers of changes. Records are watched only while a reader needs it.

    Every change of a record comes from etcd, so a watch costs etcd and this process some work per
    change. Readers that want a sample need no watch while this is the only dispatcher: then it has
    written all changes itself, and a change that no reader has room for costs next to nothing.
    """

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        siblings: Siblings,
        writer: RecordWriter,
        status: Status,
        views: RecordViews,
        proposals: HostProposals,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._siblings = siblings
        self._status = status
        self._views = views
        self._proposals = proposals
        self._readers: set[_Reader] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._tasks = BackgroundTasks()
        # The last published view of each thing.
        self._last: dict[tuple[ChangeType, str], Struct | None] = {}
        catalogue.space_changed.subscribe(self._space_changed)
        catalogue.network_changed.subscribe(self._network_changed)
        fleet.switches_changed.subscribe(self._network_changed)
        fleet.found_changed.subscribe(self._network_changed)
        fleet.configurator_changed.subscribe(self._configurator_changed)
        workers.changed.subscribe(self._workers_changed)
        proposals.changed.subscribe(self._proposals_changed)
        siblings.joined.subscribe(self._sibling_joined)
        writer.written.subscribe(self._records_written)

    async def close(self) -> None:
        """End all readers."""
        await self._tasks.cancel()
        for reader in list(self._readers):
            reader.lagged = True
            reader.queue.clear()
            reader.woken.set()

    async def changes(
        self, types: Collection[ChangeType], host: str | None = None, most: int | None = None
    ) -> AsyncGenerator[Change, None]:
        """Changes of some types; first the present state of all but records, history and load.

        Records are those of a host, or of all. From the first one on, no change is left out, except
        for loads: a slow reader gets the newest one. With `most`, at most so many records are sent
        per second, and `skipped` says how many were not. A reader that is too slow for the others
        gets `lagged`, and that is the end.
        """
        reader = _Reader(types, host, most)
        self._readers.add(reader)
        try:
            if self._needs_watch and not self._watching:
                await self._watch_records()
            for name, change in self._present():
                self._last[change.type, name] = change.data
                if change.type in reader.types:
                    reader.put(change)
            while True:
                while reader.queue:
                    yield reader.queue.popleft()
                if reader.lagged:
                    yield Change("lagged", None)
                    return
                if reader.load:
                    load, reader.load = reader.load, None
                    yield load
                    continue
                reader.woken.clear()
                await reader.woken.wait()
        finally:
            reader.close()
            self._readers.discard(reader)
            if not self._needs_watch:
                for task in self._watching:
                    task.cancel()
                self._watching.clear()

    def publish_plan(self, space: str, view: Struct) -> None:
        """Report a plan for a partition map to readers, also to those that come later."""
        self._publish("plan", space, view)

    def publish_job(self, view: Struct) -> None:
        """Report the scheduled job to readers, also to those that come later."""
        self._publish("job", "", view)

    def publish_history(self, view: Struct) -> None:
        """Report something that has happened to readers that asked for it."""
        change = Change("history", view)
        for reader in self._readers:
            if "history" in reader.types:
                reader.put(change)

    def publish_load(self, view: Callable[[], Struct]) -> None:
        """Report the load to readers that asked for it; `view` is called only if there are any."""
        readers = [reader for reader in self._readers if "load" in reader.types]
        if readers:
            change = Change("load", view())
            for reader in readers:
                reader.put_load(change)

    def _present(self) -> Iterator[tuple[str, Change]]:
        for space in self._status.spaces():
            yield space.name, Change("space", space)
        yield "", Change("network", self._network())
        yield "", Change("proposals", self._proposals.summary())
        for switch in self._status.switches(use=False):
            yield switch.id, Change("switch", switch)
        for configurator in self._status.configurators():
            yield configurator.id, Change("configurator", configurator)
        for (kind, name), data in list(self._last.items()):
            if kind in ("plan", "job"):
                yield name, Change(kind, data)

    def _proposals_changed(self) -> None:
        if any("proposals" in reader.types for reader in self._readers):
            self._publish("proposals", "", self._proposals.summary())

    def _network(self) -> NetworkSummary:
        return NetworkSummary(
            revision=self._catalogue.network_revision,
            trees=self._status.trees(),
            down=self._status.links_down(),
            differences=self._status.differences(),
        )

    def _publish(self, kind: ChangeType, name: str, data: Struct) -> None:
        """Put a view into the queues of all readers, unless it is the same as the last one."""
        if self._last.get((kind, name)) == data:
            return
        if isinstance(data, SpaceGone):
            self._last.pop((kind, name), None)
        else:
            self._last[kind, name] = data
        change = Change(kind, data)
        for reader in self._readers:
            if kind in reader.types:
                reader.put(change)

    def _space_changed(self, name: str) -> None:
        space = self._catalogue.spaces.get(name)
        if space is None:
            self._last.pop(("plan", name), None)
        if not self._readers:
            return
        if space is None:
            self._publish("space", name, SpaceGone(name))
        else:
            self._publish("space", name, self._status.show_space(space))

    def _network_changed(self) -> None:
        if not self._readers:
            return
        self._publish("network", "", self._network())
        for view in self._status.switches(use=False):
            self._publish("switch", view.id, view)
        for space in self._catalogue.spaces:
            self._space_changed(space.name)  # the trees that it can use may have changed

    def _configurator_changed(self, name: str) -> None:
        if self._readers:
            self._publish("configurator", name, self._status.configurator(name))

    def _workers_changed(self) -> None:
        if self._readers:
            for view in self._status.configurators():
                self._publish("configurator", view.id, view)

    @property
    def _needs_watch(self) -> bool:
        """Whether a reader waits for changes of records that only etcd tells."""
        alone = len(self._siblings.alive) == 1
        return any("record" in one.types and not (alone and one.sampled) for one in self._readers)

    def _sibling_joined(self, _: str) -> None:
        if self._needs_watch and not self._watching:
            self._tasks.spawn(self._watch_from_now_on(), "watch records")

    async def _watch_from_now_on(self) -> None:
        while self._needs_watch and not self._watching:
            try:
                await self._watch_records()
            except StoreUnavailable as error:
                _log.warning("records cannot be watched, retrying: %s", error)
                await asyncio.sleep(_RETRY)

    def _records_written(self, writes: list[Write]) -> None:
        """This dispatcher has written records; if they are watched, they come from etcd, too."""
        if self._watching or not any("record" in reader.types for reader in self._readers):
            return
        for write in writes:
            if (document := write.document) is not None:
                self._publish_record(document)

    async def _watch_records(self) -> None:
        """Watch records; from a moment before this returns, no change of a record is left out."""
        revision = (await self._etcd.range(RECORDS, limit=1)).revision
        if not self._watching:
            for prefix in (RECORDS, FINISHED):
                watch = self._watch(prefix, revision)
                self._watching.append(self._tasks.spawn(watch, f"watch {prefix}"))

    async def _watch(self, prefix: str, revision: int) -> None:
        async with contextlib.aclosing(follow(self._etcd, prefix, revision)) as updates:
            async for update in updates:
                for change in update.changes if isinstance(update, Changes) else ():
                    if change.value is None:
                        continue  # a finished record is put under the other prefix
                    try:
                        self._publish_record(change.value)
                    except BadDocument as error:
                        _log.error("%s%s: %s", prefix, change.name, error)
                await asyncio.sleep(0)

    def _publish_record(self, document: bytes) -> None:
        """Tell readers of a record; one that nobody has room for is not even decoded."""
        readers = [
            reader
            for reader in self._readers
            # Whether it is a record of the reader's host is not known yet.
            if "record" in reader.types
            and (self._watching or reader.sampled)
            and (reader.host is not None or not reader.skips())
        ]
        if not readers:
            return
        record = decode_record(document)
        if record.reindexing:
            return  # nothing that users see has changed yet
        change = Change("record", self._views.view(record))
        for reader in readers:
            if reader.host is None or (reader.host == record.host and not reader.skips()):
                reader.put_record(change)
