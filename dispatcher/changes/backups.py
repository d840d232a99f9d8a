"""Saves the state of the control plane as one document, and restores it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.spaces import SpaceView
from configurators.store.documents import decode_space
from configurators.store.etcd.client import Etcd, Put, unchanged
from configurators.store.keys import NUMBERS, RECORDS, SPACES, BadRecordId, record_key
from configurators.store.model import RecordKind, SpaceDoc
from dispatcher.calls import RecordSpec
from dispatcher.changes.hosts import Hosts
from dispatcher.changes.spaces import SpaceChanges
from dispatcher.errors import Conflict, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.calls.pending_reply import PendingReply
from dispatcher.requests.intake.intake import Intake
from dispatcher.requests.operation import Operation
from dispatcher.requests.writing.stored_records import scan
from dispatcher.views import Restored
from dzflow.errors import BadInput
from sdn.topology import Host

_FORMAT = "dzflow backup 1"
_CHUNK = 500
_PATIENCE = 300.0


class BadBackup(BadInput):
    """A document that is not a backup, or is one of another version."""


class SavedRecord(Struct, frozen=True):
    """A record that was active; regions follow from its filter."""

    id: str
    kind: RecordKind
    host: str
    space: str
    filter: Any
    created: float
    label: str | None = None
    ttl: float | None = None


class Backup(Struct, frozen=True):
    """What is saved: spaces as publishers use them, hosts, records."""

    format: str
    made: float
    spaces: list[SpaceDoc]
    hosts: list[Host]
    records: list[SavedRecord]


class Backups:
    """Saves and restores the state."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        intake: Intake,
        hosts: Hosts,
        changes: SpaceChanges,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._intake = intake
        self._hosts = hosts
        self._changes = changes
        self._clock = clock

    async def backup(self) -> bytes:
        """All spaces, hosts and active records, as JSON."""
        network = self._catalogue.network_doc
        spaces = [
            _settled(decode_space(item.value)) for item in (await self._etcd.range(SPACES)).items
        ]
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
        made = Backup(_FORMAT, self._clock.wall(), spaces, hosts, records)
        return await asyncio.to_thread(msgspec.json.encode, made)

    async def restore(self, data: bytes) -> Restored:
        """Restore a backup under the same ids, and wait until all records are active.

        BadBackup if it is not a backup, Conflict if there are records, or a space is in the way.
        """
        saved = await asyncio.to_thread(read_backup, data)
        if (await self._etcd.range(RECORDS, limit=1)).items:
            raise Conflict("there are subscriptions or advertisements; restore into an empty state")
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

    async def _restore_space(self, doc: SpaceDoc) -> None:
        stored = await self._etcd.get(SPACES + doc.name)
        if stored:
            if _settled(decode_space(stored.value)) == doc:
                return
            await self._changes.delete(doc.name)
        key = f"{NUMBERS}{doc.number}"
        number = await self._etcd.get(key)
        if number and number.value != doc.name.encode():
            owner = number.value.decode()
            raise Conflict(f"number {doc.number} of space {doc.name!r} belongs to {owner!r} now")
        compare = unchanged(key, number.revision if number else 0)
        if not await self._changes.store_new(doc, [compare], [Put(key, doc.name.encode())]):
            raise Conflict(f"another call is making the space {doc.name!r}; try again")

    async def _restore_records(self, some: Sequence[SavedRecord]) -> int:
        """Begin records under their old ids; how many of them did not become active."""
        reply = PendingReply(len(some))
        now = self._clock.monotonic()
        for place, saved in enumerate(some):
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


def _settled(doc: SpaceDoc) -> SpaceDoc:
    """A space without the changes of a schema change that is in progress."""
    return replace(doc, versions={doc.current: doc.versions[doc.current]}, by="")


def read_backup(data: bytes) -> Backup:
    """A backup from its file; raises BadBackup if it cannot be used."""
    try:
        saved = msgspec.json.decode(data, type=Backup)
    except msgspec.MsgspecError as error:
        raise BadBackup(f"this is not a backup of dzflow: {error}") from None
    if saved.format != _FORMAT:
        raise BadBackup(f"this is a backup of the form {saved.format[:40]!r}, not {_FORMAT!r}")
    for doc in saved.spaces:
        try:
            SpaceView.of(doc)
        except (BadInput, KeyError, ValueError, TypeError) as error:
            raise BadBackup(f"space {doc.name[:64]!r} cannot be used: {error}") from None
    numbers = {doc.name: doc.number for doc in saved.spaces}
    for record in saved.records:
        try:
            record_key(record.id)
        except BadRecordId as error:
            raise BadBackup(f"a record cannot be used: {error}") from None
        number = numbers.get(record.space)
        if number is None or not record.id.startswith(f"{record.kind[0]}{number:x}-"):
            raise BadBackup(f"{record.id!r} is not the id of a {record.kind} in its space")
    return saved
