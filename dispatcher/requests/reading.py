"""Records read from the store: some by id, lists page by page, all of them in turn."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from configurators.store.documents import BadDocument, decode_record
from configurators.store.etcd.client import Etcd, Get
from configurators.store.keys import FINISHED, RECORDS, BadRecordId, record_key
from configurators.store.model import Record, RecordKind, State

_log = logging.getLogger(__name__)

_AT_ONCE = 100  # keys of one read
_PAGE = 1_000
MOST_LOOKED_AT = 20_000


class Held(NamedTuple):
    """A record as it is stored."""

    record: Record
    revision: int


async def read_many(etcd: Etcd, ids: Sequence[str], finished: bool = False) -> dict[str, Held]:
    """The records with these ids, as far as there are any."""
    keys = []
    for name in dict.fromkeys(ids):
        try:
            keys.append(record_key(name, finished))
        except BadRecordId:
            continue
    found: dict[str, Held] = {}
    parts = [keys[at : at + _AT_ONCE] for at in range(0, len(keys), _AT_ONCE)]
    results = await asyncio.gather(
        *(etcd.transact([], [Get(key) for key in part]) for part in parts)
    )
    for result in results:
        for items in result.gets:
            for item in items:
                record = decode_record(item.value)
                found[record.id] = Held(record, item.revision)
    return found


async def scan(
    etcd: Etcd,
    under: str = RECORDS,
    after: str | None = None,
    most: int | None = None,
    page_size: int = _PAGE,
) -> AsyncIterator[tuple[str, Held]]:
    """Records one after the other, with their keys, as they are when their page is read.

    Those that cannot be read are left out.
    """
    looked = 0
    while most is None or looked < most:
        limit = page_size if most is None else min(page_size, most - looked)
        page = await etcd.range(under, after=after, limit=limit)
        for item in page.items:
            try:
                record = decode_record(item.value)
            except BadDocument as error:
                _log.error("%s is left out: %s", item.key, error)
                continue
            yield item.key, Held(record, item.revision)
        if not page.more or not page.items:
            return
        looked += len(page.items)
        after = page.items[-1].key


class Listed(NamedTuple):
    """Some records, and the id after which to go on, if there may be more."""

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
) -> Listed:
    """Records of a kind that are wanted. So many are looked at, then it is for the caller to go on.

    Removed and failed ones are apart, and listed only if their state is asked for.
    """
    finished = state in ("removed", "failed")
    under = FINISHED if finished else RECORDS
    if space is not None:
        under += f"{space:x}/{kind[0]}"
    begin = record_key(after, finished) if after else None
    found: list[Record] = []
    looked = 0
    last = None
    size = min(_PAGE, max(limit + 1, _AT_ONCE))
    async for _, (record, _) in scan(etcd, under, begin, MOST_LOOKED_AT, size):
        looked += 1
        if len(found) == limit:
            return Listed(found, last)
        last = record.id
        if record.kind == kind and state in (None, record.state) and wanted(record):
            found.append(record)
    # Some may have been left out, so that it is fewer than were asked for.
    return Listed(found, last if looked > MOST_LOOKED_AT // 2 else None)
