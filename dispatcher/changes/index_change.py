"""Changes how a space is indexed: its schema, or only the dictionary of shapes.

A changed schema is a second index version, which is installed beside the first one. Other shapes
are a change within a version: events keep their addresses.

The stored space says how far the change has come, so that any dispatcher can go on with it (`by`
names the one that does):

| stored | what is done next |
| --- | --- |
| two versions, publishers write the older | install all records in the newer, then announce it |
| two versions, publishers write the newer | after a grace period, drop the older |
| one version | take what is left of others out of the records, index them again, then it is over |
"""

import asyncio
import logging
from functools import partial

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace, with_current, without_version
from configurators.store.documents import decode_space, encode
from configurators.store.etcd.client import Delete, Etcd, Put, StoreError, unchanged
from configurators.store.keys import RECORDS, SPACES, owners_of_space, record_key
from configurators.store.model import SpaceDoc
from dispatcher.changes.reindexing import Reindexing
from dispatcher.errors import Conflict, Failed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.siblings import Siblings
from dispatcher.requests.adoption import Adoption
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.stored_records import StoredRecord, scan
from dispatcher.requests.writing.writes import Write, WriteResult
from dzflow.address import MAX_VERSION
from dzflow.aio import PauseByTime
from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK, parse_filter

_log = logging.getLogger(__name__)

_INSTALLED_AT_ONCE = 500
_NAMED = 20  # records that an error lists
_PAUSE = 0.5
_INSTALL_TIME = 120.0
_ROUNDS = 3  # attempts to install what switches refuse, before the change is taken back
_PATIENCE = 30.0  # seconds that a call waits until the new version is announced


def newer_version(doc: SpaceDoc) -> int | None:
    """The version that a change leads to, while it is not announced to publishers yet."""
    following = (doc.current + 1) % (MAX_VERSION + 1)
    return following if following in doc.versions else None


class IndexChanges:
    """The changes of schemas and shapes that this dispatcher carries out."""

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        grace: float,
        catalogue: Catalogue,
        siblings: Siblings,
        adoption: Adoption,
        reindexing: Reindexing,
        writer: RecordWriter,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._grace = grace
        self._catalogue = catalogue
        self._siblings = siblings
        self._reindexing = reindexing
        self._writer = writer
        self._clock = clock
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._announced: dict[str, asyncio.Future[None]] = {}  # set when it is announced
        adoption.looking.subscribe(self.adopt)

    async def close(self) -> None:
        """Stop; another dispatcher goes on with changes that are in progress."""
        tasks = list(self._driven.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def check_fit(self, doc: SpaceDoc, version: int) -> None:
        """Conflict if there are records whose filters do not fit a version."""
        space = LoadedSpace.of(doc).versions[version].space
        wrong: list[str] = []
        reason = ""
        pause = PauseByTime(self._clock.monotonic)
        async for _, (record, _) in scan(self._etcd, f"{RECORDS}{doc.number:x}/"):
            if pause.due:
                await pause.let_others_run()
            if record.state == "removing":
                continue
            try:
                parse_filter(space, record.filter, STORED_WORK)
                if record.next:
                    parse_filter(space, record.next.filter, STORED_WORK)
            except BadInput as error:
                wrong.append(record.id)
                reason = reason or str(error)
        if wrong:
            named = ", ".join(wrong[:_NAMED]) + (" and more" if len(wrong) > _NAMED else "")
            raise Conflict(
                f"{len(wrong)} filters do not fit the new schema: {named}; the first: {reason}",
                ids=tuple(wrong[:_NAMED]),
            )

    async def wait_until_announced(self, name: str) -> None:
        """Wait until the new version is announced to publishers, at most `_PATIENCE` seconds."""
        announced = self._announced.get(name)
        if announced is not None:
            await asyncio.wait([announced], timeout=_PATIENCE)
            if announced.done() and not announced.cancelled():
                announced.result()

    def adopt(self) -> None:
        """Go on with changes whose dispatcher is gone."""
        for space in list(self._catalogue.spaces):
            by = space.doc.by
            # A change with our own id is from before a restart, unless it is in progress here.
            if by and (by == self._me or by not in self._siblings.alive):
                self.drive(space.name)

    def drive(self, name: str) -> None:
        """Carry out the change of a space, until it is over."""
        if name not in self._driven:
            self._announced[name] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run(name), name=f"change {name}")
            self._driven[name] = task
            task.add_done_callback(lambda task: self._ended(name, task))

    def _ended(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._driven[name]
        announced = self._announced.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if announced and not announced.done():
            if error:
                announced.set_exception(error)
                announced.exception()  # no caller need be waiting for it
            else:
                announced.cancel()
        if error:
            _log.error("the change of space %s stopped: %s", name, error, exc_info=error)

    async def _run(self, name: str) -> None:
        while True:
            try:
                if await self._step(name):
                    return
            except StoreError as error:
                _log.warning("the change of space %s waits: %s", name, error)
                await asyncio.sleep(_PAUSE)

    async def _step(self, name: str) -> bool:
        """Take the next step; True if the change is over."""
        stored = await self._etcd.get(SPACES + name)
        doc = decode_space(stored.value) if stored else None
        if stored is None or doc is None or not doc.by:
            return True
        if doc.by != self._me and doc.by in self._siblings.alive:
            return True  # it was thought to be gone, or this one was
        if doc.by != self._me:
            await self._store(replace(doc, by=self._me), stored.revision)
            return False
        version = newer_version(doc)
        if version is not None:
            await self._install(doc, stored.revision, version)
        elif len(doc.versions) > 1:
            self._announce(name)
            if (await self._etcd.range(f"{RECORDS}{doc.number:x}/", limit=1)).items:
                await asyncio.sleep(self._grace)
            older = next(number for number in doc.versions if number != doc.current)
            await self._store(without_version(doc, older), stored.revision)
        else:
            self._announce(name)
            if await self._strip(doc, stored.revision):
                await self._catalogue.refresh_spaces()
                await self._reindexing.index_all(LoadedSpace.of(doc))
                await self._store(replace(doc, by=""), stored.revision)
                await self._catalogue.refresh_spaces()
        return False

    def _announce(self, name: str) -> None:
        announced = self._announced.get(name)
        if announced and not announced.done():
            announced.set_result(None)

    async def _install(self, doc: SpaceDoc, revision: int, version: int) -> None:
        """Install all records in the newer version, then announce it; or take it back."""
        await self._catalogue.refresh_spaces()
        try:
            await self.check_fit(doc, version)
            refusals = 0
            while left := await self._without(doc, version):
                problems = await self._reindexing.update(left, _INSTALL_TIME)
                refused = next((p.detail for p in problems if p and p.status >= 500), None)
                refusals = refusals + 1 if refused else 0
                if refusals >= _ROUNDS:
                    raise Failed(f"the new version does not fit onto the switches: {refused}")
        except (Conflict, Failed) as error:
            announced = self._announced.get(doc.name)
            if announced and not announced.done():
                announced.set_exception(error)
                announced.exception()
            _log.warning("the change of space %s is taken back: %s", doc.name, error)
            await self._store(without_version(doc, version), revision)
            return
        await self._store(with_current(doc, version), revision)

    async def _without(self, doc: SpaceDoc, version: int) -> list[StoredRecord]:
        """Some records that are not in a version; none if all are in it, now and later."""
        while True:
            found: list[StoredRecord] = []
            waits = False
            async for _, stored in scan(self._etcd, f"{RECORDS}{doc.number:x}/"):
                if version in stored.record.regions or stored.record.state == "removing":
                    continue
                if stored.record.open:
                    waits = True  # its operation installs it in both versions
                else:
                    found.append(stored)
                    if len(found) == _INSTALLED_AT_ONCE:
                        break
            if found or not waits:
                return found
            await asyncio.sleep(_PAUSE)

    async def _strip(self, doc: SpaceDoc, revision: int) -> bool:
        """Remove what is left of versions that are gone: owners (configurators then empty the
        partitions) and regions in records. True if no record has any left."""
        gone = [version for version in range(MAX_VERSION + 1) if version not in doc.versions]
        owners = [Delete(f"{owners_of_space(doc.number)}{v}/", prefix=True) for v in gone]
        await self._etcd.transact([unchanged(SPACES + doc.name, revision)], owners)
        clean = True
        writes: list[asyncio.Future[WriteResult]] = []
        async for key, (record, at) in scan(self._etcd, f"{RECORDS}{doc.number:x}/"):
            versions = {*record.regions, *(record.next.regions if record.next else ())}
            if versions <= doc.versions.keys():
                continue
            clean = False
            if record.open:
                continue
            regions = {v: packed for v, packed in record.regions.items() if v in doc.versions}
            future: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
            writes.append(future)
            put = Put(record_key(record.id), encode(replace(record, regions=regions)))
            self._writer.write(Write(key, at, [put], partial(_stripped, future)))
        await asyncio.gather(*writes)
        if not clean and not writes:
            await asyncio.sleep(_PAUSE)
        return clean

    async def _store(self, doc: SpaceDoc, revision: int) -> bool:
        put = Put(SPACES + doc.name, encode(doc))
        stored = await self._etcd.transact([unchanged(SPACES + doc.name, revision)], [put])
        return stored.succeeded


def _stripped(future: "asyncio.Future[WriteResult]", _: Write, result: WriteResult) -> None:
    if not future.done():  # it is cancelled if the dispatcher is closing
        future.set_result(result)
