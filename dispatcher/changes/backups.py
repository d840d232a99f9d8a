"""Saves the state of the control plane as one document, and restores it."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from configurators.environment import Clock
from configurators.store.documents import BadDocument, decode_space
from configurators.store.etcd.client import Etcd, Put, unchanged
from configurators.store.keys import NUMBERS, RECORDS, SPACES
from configurators.store.model import SpaceDoc
from dispatcher.calls import RecordSpec
from dispatcher.changes.backup_file import FORMAT, Backup, BadBackup, SavedRecord, read_backup
from dispatcher.changes.hosts import Hosts
from dispatcher.changes.spaces import SpaceChanges
from dispatcher.errors import Conflict, QuotaReached, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.usage import Usage
from dispatcher.requests.calls.pending_reply import PendingReply
from dispatcher.requests.intake.intake import Intake
from dispatcher.requests.operation import Operation
from dispatcher.requests.writing.stored_records import scan
from dispatcher.views import Restored
from dzflow.aio import PauseByTime

_CHUNK = 500
_PATIENCE = 300.0


class Backups:
    """Saves and restores the state."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        intake: Intake,
        usage: Usage,
        hosts: Hosts,
        changes: SpaceChanges,
        max_filter: int | None,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._intake = intake
        self._usage = usage
        self._max_filter = max_filter
        self._hosts = hosts
        self._changes = changes
        self._clock = clock

    async def backup(self) -> bytes:
        """All spaces, hosts and active records, as JSON."""
        network = self._catalogue.network_doc
        await self._catalogue.refresh_spaces()
        spaces = [_settled(space.doc) for space in self._catalogue.spaces]
        records = []
        async for _, (record, _) in scan(self._etcd):
            if record.state == "active":
                records.append(
                    SavedRecord(
                        record.id,
                        record.kind,
                        record.host,
                        record.space,
                        record.filter,
                        record.created,
                        record.label,
                        record.ttl,
                    )
                )
        hosts = list(network.hosts) if network else []
        made = Backup(FORMAT, self._clock.wall(), spaces, hosts, records)
        return await asyncio.to_thread(msgspec.json.encode, made)

    async def restore(self, data: bytes) -> Restored:
        """Restore a backup under the same ids, and wait until all records are active.

        Nothing is changed if it cannot be restored as a whole: BadBackup if the API would refuse
        something in it, Conflict if there are records, or a space is in the way.
        """
        network = self._catalogue.network_doc
        if network is None:
            raise Unavailable("there is no network yet; no southbound process has started", 2.0)
        saved = await asyncio.to_thread(read_backup, data, network, self._max_filter)
        try:
            self._usage.check_all(saved.records)
        except QuotaReached as error:
            raise BadBackup(f"records: {error}") from None
        if (await self._etcd.range(RECORDS, limit=1)).items:
            raise Conflict("there are subscriptions or advertisements; restore into an empty state")
        await self._check_spaces(saved.spaces)
        for host in saved.hosts:
            known = {view.id: view for view in self._hosts.views()}.get(host.id)
            if known is None or (known.switch, known.port) != (host.switch, host.port):
                await self._hosts.put(host)
        for doc in saved.spaces:
            await self._restore_space(doc)
        await self._catalogue.refresh_spaces()
        failed = 0
        for at in range(0, len(saved.records), _CHUNK):
            failed += await self._restore_records(saved.records[at : at + _CHUNK])
        return Restored(len(saved.spaces), len(saved.records) - failed, failed)

    async def _check_spaces(self, docs: Sequence[SpaceDoc]) -> None:
        """Conflict if a space that exists is in the way of one that is to be restored."""
        names = {doc.name for doc in docs}
        numbers = {doc.number: doc.name for doc in docs}
        for item in (await self._etcd.range(SPACES)).items:
            try:
                known = decode_space(item.value)
            except BadDocument as error:
                raise Conflict(f"{item.key}: {error}; delete this key first") from None
            if known.name in names and known.by:
                raise Conflict(f"{known.name!r} is being changed; try again later")
            wanted = numbers.get(known.number, known.name)
            if wanted != known.name:
                raise _number_taken(known.number, wanted, known.name)
        for item in (await self._etcd.range(NUMBERS)).items:
            number, owner = int(item.key.removeprefix(NUMBERS)), item.value.decode()
            if numbers.get(number, owner) != owner:
                raise _number_taken(number, numbers[number], owner)

    async def _restore_space(self, doc: SpaceDoc) -> None:
        stored = await self._etcd.get(SPACES + doc.name)
        if stored:
            if _settled(decode_space(stored.value)) == doc:
                return
            await self._changes.delete(doc.name)
        key = f"{NUMBERS}{doc.number}"
        number = await self._etcd.get(key)
        if number and number.value != doc.name.encode():
            raise _number_taken(doc.number, doc.name, number.value.decode())
        compare = unchanged(key, number.revision if number else 0)
        if not await self._changes.store_new(doc, [compare], [Put(key, doc.name.encode())]):
            raise Conflict(f"another call is making the space {doc.name!r}; try again")

    async def _restore_records(self, some: Sequence[SavedRecord]) -> int:
        """Begin records under their old ids; how many of them did not become active."""
        reply = PendingReply(len(some))
        now = self._clock.monotonic()
        pause = PauseByTime(self._clock.monotonic)
        for place, saved in enumerate(some):
            if pause.due:
                await pause.let_others_run()
            spec = RecordSpec(saved.host, saved.space, saved.filter, saved.label, saved.ttl)
            self._intake.force(
                Operation.begin(
                    saved.kind,
                    spec,
                    now,
                    reply.element(place),
                    id=saved.id,
                    created=saved.created,
                )
            )
        await reply.wait(_PATIENCE)
        for answer in reply.answers:
            if answer is None:
                raise Unavailable("not all records are active yet; the restore goes on", 10.0)
        return sum(answer is not None and answer.problem is not None for answer in reply.answers)


def _number_taken(number: int, wanted_by: str, owner: str) -> Conflict:
    return Conflict(f"number {number} of space {wanted_by!r} belongs to {owner!r} now")


def _settled(doc: SpaceDoc) -> SpaceDoc:
    """A space without changes of its schema or its partition map that are in progress."""
    current = replace(doc.versions[doc.current], cutting=())
    return replace(doc, versions={doc.current: current}, by="")
