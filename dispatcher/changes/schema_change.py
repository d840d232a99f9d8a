"""A changed schema on its way: a second version of the index beside the first, until that goes.

What is stored says how far the change has come, so that any dispatcher can go on with it (`by`
names the one that does):

| stored | what is done next |
| --- | --- |
| two versions, publishers write the older | install all records in the newer, tell publishers |
| two versions, publishers write the newer | after a grace period, drop the older |
| one version | take what is left of others out of the records, then it is over |
"""

import asyncio
import logging
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from configurators.state.spaces import SpaceView, with_current, without_version
from configurators.store.documents import decode_space, encode
from configurators.store.etcd.client import Delete, Etcd, Put, StoreError, unchanged
from configurators.store.keys import RECORDS, SPACES, owners_of_space, record_key
from configurators.store.model import SpaceDoc
from dispatcher.errors import Conflict, Failed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.calls import Call
from dispatcher.requests.intake import Draft, Intake
from dispatcher.requests.reading import Held, scan
from dispatcher.requests.record_writer import Journal, Verdict, Write
from dzflow.address import MAX_VERSION
from dzflow.errors import BadInput
from dzflow.filters import parse_filter

_log = logging.getLogger(__name__)

_INSTALLED_AT_ONCE = 500
_NAMED = 20  # records that an error names
_PAUSE = 0.5
_INSTALL_TIME = 120.0
_ROUNDS = 3  # of installing what was refused, before it is given up
_PATIENCE = 30.0  # seconds that a call waits for publishers to be told


def newer_version(doc: SpaceDoc) -> int | None:
    """The version that a change leads to, while publishers are not told of it yet."""
    following = (doc.current + 1) % (MAX_VERSION + 1)
    return following if following in doc.versions else None


class Migration:
    """Changes of schemas that this dispatcher drives."""

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        grace: float,
        catalogue: Catalogue,
        intake: Intake,
        journal: Journal,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._grace = grace
        self._catalogue = catalogue
        self._intake = intake
        self._journal = journal
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, asyncio.Future[None]] = {}  # set when publishers are told

    async def close(self) -> None:
        """Stop; another dispatcher goes on with changes that are under way."""
        tasks = list(self._driven.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def check_fit(self, doc: SpaceDoc, version: int) -> None:
        """Conflict if there are records whose filters mean nothing under a version."""
        space = SpaceView.of(doc).versions[version].space
        wrong: list[str] = []
        reason = ""
        looked = 0
        async for _, (record, _) in scan(self._etcd, f"{RECORDS}{doc.number:x}/"):
            looked += 1
            if not looked % 50:
                await asyncio.sleep(0)
            if record.state == "removing":
                continue
            try:
                parse_filter(space, record.filter)
                if record.next:
                    parse_filter(space, record.next.filter)
            except BadInput as error:
                wrong.append(record.id)
                reason = reason or str(error)
        if wrong:
            named = ", ".join(wrong[:_NAMED]) + (" and more" if len(wrong) > _NAMED else "")
            raise Conflict(
                f"{len(wrong)} filters do not fit the new schema: {named}; the first: {reason}",
                ids=tuple(wrong[:_NAMED]),
            )

    async def wait_until_told(self, name: str) -> None:
        """Until publishers are told of the new version; not for ever."""
        told = self._told.get(name)
        if told is not None:
            await asyncio.wait([told], timeout=_PATIENCE)
            if told.done() and not told.cancelled():
                told.result()

    def dispatcher_gone(self, alive: Collection[str]) -> None:
        """Take over changes that nobody goes on with."""
        for space in list(self._catalogue.spaces):
            # What bears our own name is from before a restart, if it is not driven already.
            if space.doc.by and (space.doc.by not in alive or space.doc.by == self._me):
                self.drive(space.name)

    def drive(self, name: str) -> None:
        """Go on with the change of a space until it is over."""
        if name not in self._driven:
            self._told[name] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run(name), name=f"change {name}")
            self._driven[name] = task
            task.add_done_callback(lambda task: self._ended(name, task))

    def _ended(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._driven[name]
        told = self._told.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if told and not told.done():
            if error:
                told.set_exception(error)
                told.exception()  # whoever waits gets it; nobody need
            else:
                told.cancel()
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
        """Go one step on; True if it is over."""
        stored = await self._etcd.get(SPACES + name)
        doc = decode_space(stored.value) if stored else None
        if stored is None or doc is None or not doc.by:
            return True
        if doc.by != self._me:
            await self._store(replace(doc, by=self._me), stored.revision)
            return False
        version = newer_version(doc)
        if version is not None:
            await self._install(doc, stored.revision, version)
        elif len(doc.versions) > 1:
            self._tell_told(name)
            if (await self._etcd.range(f"{RECORDS}{doc.number:x}/", limit=1)).items:
                await asyncio.sleep(self._grace)
            older = next(number for number in doc.versions if number != doc.current)
            await self._store(without_version(doc, older), stored.revision)
        else:
            self._tell_told(name)
            if await self._strip(doc, stored.revision):
                await self._store(replace(doc, by=""), stored.revision)
                await self._catalogue.refresh_spaces()
        return False

    def _tell_told(self, name: str) -> None:
        told = self._told.get(name)
        if told and not told.done():
            told.set_result(None)

    async def _install(self, doc: SpaceDoc, revision: int, version: int) -> None:
        """Have all records in the newer version, then tell publishers; or take it back."""
        await self._catalogue.refresh_spaces()
        try:
            await self.check_fit(doc, version)
            refusals = 0
            while left := await self._without(doc, version):
                refused = await self._install_some(left)
                refusals = refusals + 1 if refused else 0
                if refusals >= _ROUNDS:
                    raise Failed(f"the new version does not fit onto the switches: {refused}")
        except (Conflict, Failed) as error:
            told = self._told.get(doc.name)
            if told and not told.done():
                told.set_exception(error)
                told.exception()
            _log.warning("the change of space %s is taken back: %s", doc.name, error)
            await self._store(without_version(doc, version), revision)
            return
        await self._store(with_current(doc, version), revision)

    async def _without(self, doc: SpaceDoc, version: int) -> list[Held]:
        """Records that are not in a version; all are in it when there are none, now and later."""
        found: list[Held] = []
        waits = False
        async for _, held in scan(self._etcd, f"{RECORDS}{doc.number:x}/"):
            if version in held.record.regions or held.record.state == "removing":
                continue
            if held.record.open:
                waits = True  # whoever drives it installs it in both versions
            else:
                found.append(held)
                if len(found) == _INSTALLED_AT_ONCE:
                    return found
        if waits and not found:
            await asyncio.sleep(_PAUSE)
            return await self._without(doc, version)
        return found

    async def _install_some(self, some: Sequence[Held]) -> str | None:
        """Update records to their own filters, in all versions; a reason if some were refused."""
        call = Call(len(some))
        for place, (record, revision) in enumerate(some):
            draft = Draft("update", record.kind, call, place)
            draft.id, draft.record, draft.revision = record.id, record, revision
            draft.given = record.filter
            self._intake.force(draft)
        await call.wait(_INSTALL_TIME)
        for answer in call.answers:
            if answer and answer.problem and answer.status >= 500:
                return str(answer.problem.detail)
        return None

    async def _strip(self, doc: SpaceDoc, revision: int) -> bool:
        """Take out what is left of versions that are gone: their owners (configurators empty the
        partitions), and regions in records; True if no record has any left."""
        gone = [version for version in range(MAX_VERSION + 1) if version not in doc.versions]
        owners = [Delete(f"{owners_of_space(doc.number)}{v}/", prefix=True) for v in gone]
        await self._etcd.transact([unchanged(SPACES + doc.name, revision)], owners)
        clean = True
        writes: list[asyncio.Future[Verdict]] = []
        async for key, (record, at) in scan(self._etcd, f"{RECORDS}{doc.number:x}/"):
            if all(version in doc.versions for version in record.regions):
                continue
            clean = False
            if record.open:
                continue
            regions = {v: packed for v, packed in record.regions.items() if v in doc.versions}
            future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
            writes.append(future)
            self._journal.write(
                Write(
                    key,
                    at,
                    [Put(record_key(record.id), encode(replace(record, regions=regions)))],
                    _stripped,
                    future,
                )
            )
        await asyncio.gather(*writes)
        if not clean and not writes:
            await asyncio.sleep(_PAUSE)
        return clean

    async def _store(self, doc: SpaceDoc, revision: int) -> bool:
        put = Put(SPACES + doc.name, encode(doc))
        stored = await self._etcd.transact([unchanged(SPACES + doc.name, revision)], [put])
        return stored.succeeded


def _stripped(write: Write, verdict: Verdict) -> None:
    if not write.about.done():  # nobody waits for it if the dispatcher is closing
        write.about.set_result(verdict)
