"""Reads from stored records the partials that a new owner of partitions begins with."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.engine import Engine
from configurators.engine.partials import Partial, Request
from configurators.state.spaces import LoadedVersion
from configurators.store.documents import BadDocument, decode_record
from configurators.store.etcd.client import Etcd, KeyPage, StoreError
from configurators.store.keys import RECORDS
from configurators.store.model import Record
from configurators.streams.packing import unpack_regions
from configurators.streams.task_numbers import first_number, last_number
from dzflow.errors import DzflowError

log = logging.getLogger(__name__)

_AT_ONCE = 1000
_RETRY = 0.5


class Loaded(Struct, frozen=True, gc=False):
    """What a partition has of an active record, and the number of the last task for it.

    `unsure`: switches may lack some of it, because an operation on the record is in progress.
    """

    partial: Partial
    seq: int
    unsure: bool = False


def counts(record: Record) -> bool:
    """Whether partitions have something of a record, as far as its operations are settled.

    If its removal began before it was active, switches may lack its flows: a request that wants the
    same flows would be acknowledged though no switch has them.
    """
    if record.state == "removing":
        return record.acknowledged is not None
    return record.state == "active"


def last_seq(record: Record) -> int:
    """The `Task.seq` under which what is settled of a record counts.

    Tasks of an operation that is still open come again, and must not be taken for old ones; those
    of one that is settled count no more, whichever of its phases they are from.
    """
    return first_number(record.seq) - 1 if record.open else last_number(record.seq)


def partials(
    records: Iterable[Record], views: Iterable[LoadedVersion], settled: bool = False
) -> Iterator[tuple[str, Loaded]]:
    """What each partition of some versions of a space has of records, by the partition's name.

    While an update is in progress, that is what the old and the new filter want: flows that both
    want are never interrupted. With `settled`, it is only what the old filter wants: the caller
    knows from the partition's log what was done since. Records that cannot be used are left out.
    """
    versions = list(views)
    for record in records:
        if not counts(record):
            continue
        try:
            found = [_routed(record, view, settled) for view in versions]
        except (DzflowError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Something else than dzflow has written it; it must not keep the others from loading.
            log.error("%s is left out: %s", record.id, error)
            continue
        seq = last_seq(record)
        for shares in found:
            for name, partial in shares.items():
                yield name, Loaded(partial, seq, record.open)


def _routed(record: Record, view: LoadedVersion, settled: bool) -> dict[str, Partial]:
    found = _route(record, record.regions, view)
    if record.next and not settled:
        return _union(found, _route(record, record.next.regions, view))
    return found


def _route(record: Record, regions: Mapping[int, bytes], view: LoadedVersion) -> dict[str, Partial]:
    packed = regions.get(view.version)
    if not packed:
        return {}
    advertised = record.kind == "advertisement"
    return view.route(Request(advertised, record.id, record.host, unpack_regions(packed)))


def _union(first: dict[str, Partial], second: dict[str, Partial]) -> dict[str, Partial]:
    found = dict(first)
    for name, partial in second.items():
        known = found.get(name)
        if known:
            regions = tuple(dict.fromkeys((*known.regions, *partial.regions)))
            edge = tuple(dict.fromkeys((*known.edge, *partial.edge)))
            partial = replace(partial, regions=regions, edge=edge)
        found[name] = partial
    return found


async def read(
    etcd: Etcd, views: Mapping[str, LoadedVersion], settled: bool = False
) -> dict[str, list[Loaded]]:
    """What partitions have of all records of their spaces, as in `partials`.

    `views` has the version of each partition. Retries while etcd does not answer.
    """
    found: dict[str, list[Loaded]] = {name: [] for name in views}
    spaces: dict[int, dict[int, LoadedVersion]] = {}
    for view in views.values():
        spaces.setdefault(view.number, {})[view.version] = view
    for number, versions in spaces.items():
        prefix = f"{RECORDS}{number:x}/"
        after: str | None = None
        more = True
        while more:
            try:
                page = await etcd.range(prefix, after, limit=_AT_ONCE)
            except StoreError as error:
                log.warning("cannot read records, retrying: %s", error)
                await asyncio.sleep(_RETRY)
                continue
            for name, loaded in partials(_records(page), versions.values(), settled):
                if name in found:
                    found[name].append(loaded)
            after, more = page.items[-1].key if page.items else None, page.more
    return found


def load_usable(engine: Engine, active: Iterable[Partial]) -> None:
    """Load what is active into an engine, without what something else than dzflow has written."""
    partials = list(active)
    try:
        engine.load(partials)
    except DzflowError:
        for partial in partials:
            try:
                engine.load([partial])
            except DzflowError as error:
                log.error("%s is left out: %s", partial.id, error)


def _records(page: KeyPage) -> Iterator[Record]:
    for item in page.items:
        try:
            record = decode_record(item.value)
            if not item.key.endswith(f"/{record.id}"):
                raise BadDocument(f"it has the id {record.id[:32]!r}")
        except BadDocument as error:
            log.error("%s is left out: %s", item.key, error)
        else:
            yield record
