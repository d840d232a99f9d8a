"""Reads records from etcd: some by id, lists page by page, or all of them one after the other."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from configurators.store.documents import BadDocument, decode_record
from configurators.store.etcd.client import Etcd, Get, Stored
from configurators.store.keys import FINISHED, RECORDS, BadRecordId, record_key
from configurators.store.model import Record, RecordKind, State
from dispatcher.knowledge.usage import weight

_log = logging.getLogger(__name__)

_AT_ONCE = 100  # keys in one read
_PAGE = 1_000
MOST_LOOKED_AT = 20_000


class StoredRecord(NamedTuple):
    """A record and its revision in etcd."""

    record: Record
    revision: int

    @classmethod
    def decode(cls, stored: Stored) -> "StoredRecord":
        """A record from its key in etcd; BadDocument if it cannot be read."""
        return cls(decode_record(stored.value), stored.revision)


async def read_many(
    etcd: Etcd, ids: Sequence[str], finished: bool = False
) -> dict[str, StoredRecord]:
    """The records with these ids, those of them that exist and can be decoded."""
    keys = []
    for id in dict.fromkeys(ids):
        try:
            keys.append(record_key(id, finished))
        except BadRecordId:
            continue
    found: dict[str, StoredRecord] = {}
    parts = [keys[at : at + _AT_ONCE] for at in range(0, len(keys), _AT_ONCE)]
    results = await asyncio.gather(
        *(etcd.transact([], [Get(key) for key in part]) for part in parts)
    )
    for result in results:
        for items in result.gets:
            for item in items:
                if stored := _decode(item):
                    found[stored.record.id] = stored
    return found


async def scan(
    etcd: Etcd,
    under: str = RECORDS,
    after: str | None = None,
    most: int | None = None,
    page_size: int = _PAGE,
) -> AsyncIterator[tuple[str, StoredRecord]]:
    """Yield records one after the other, with their keys, as they are when their page is read.

    Records that cannot be decoded are left out.
    """
    looked = 0
    while most is None or looked < most:
        limit = page_size if most is None else min(page_size, most - looked)
        page = await etcd.range(under, after=after, limit=limit)
        for item in page.items:
            if stored := _decode(item):
                yield item.key, stored
        if not page.more or not page.items:
            return
        looked += len(page.items)
        after = page.items[-1].key


def _decode(item: Stored) -> StoredRecord | None:
    """A record; None if something else than dzflow has written it, which the log says."""
    try:
        stored = StoredRecord.decode(item)
        if not item.key.endswith(f"/{stored.record.id}"):
            raise BadDocument(f"it has the id {stored.record.id[:32]!r}")
    except BadDocument as error:
        _log.error("%s is left out: %s", item.key, error)
        return None
    return stored


class Listed(NamedTuple):
    """Some records, and the id after which to continue, if there may be more."""

    records: list[Record]
    next: str | None


async def list_records(
    etcd: Etcd,
    kind: RecordKind,
    wanted: Callable[[Record], bool],
    space: int | None,
    state: State | None,
    limit: int,
    after: str | None,
    most_bytes: int | None = None,
) -> Listed:
    """Records of a kind that are `wanted`. It reads a bounded number, then the caller continues.

    There are at most `limit` of them, and no more than `most_bytes` hold, but for the first one.
    Removed and failed records are stored apart, and listed only if their state is asked for.
    """
    finished = state in ("removed", "failed")
    under = FINISHED if finished else RECORDS
    if space is not None:
        under += f"{space:x}/{kind[0]}"
    begin = record_key(after, finished) if after else None
    found: list[Record] = []
    looked = bytes_found = 0
    last = None
    size = min(_PAGE, max(limit + 1, _AT_ONCE))
    async for _, (record, _) in scan(etcd, under, begin, MOST_LOOKED_AT, size):
        looked += 1
        if len(found) == limit:
            return Listed(found, last)
        if record.kind == kind and state in (None, record.state) and wanted(record):
            bytes_found += _shown_size(record)
            if most_bytes is not None and bytes_found > most_bytes and found:
                return Listed(found, last)
            found.append(record)
        last = record.id
    # There may be more, although fewer were found than asked for: some were not wanted.
    return Listed(found, last if looked > MOST_LOOKED_AT // 2 else None)


def _shown_size(record: Record) -> int:
    """The bytes of a record as callers see it, about: regions are four times as long as text."""
    size = weight(record.filter) + 4 * max(map(len, record.regions.values()), default=0)
    return size + weight(record.next.filter) if record.next else size
