"""From stored records to the partials that partitions begin with."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from configurators.packing import unpack_regions
from configurators.partials import Partial, Request
from configurators.spaces import VersionView
from configurators.store.model import Record


class Loaded(Struct, frozen=True, gc=False):
    """What a partition has of an active record, and the highest `seq` that it counts under."""

    partial: Partial
    seq: int


def counts(record: Record) -> bool:
    """Whether partitions have something of a record, as far as it is settled."""
    return record.state in ("active", "removing")


def last_seq(record: Record) -> int:
    """The `Task.seq` under which what is settled of a record counts.

    Tasks of an operation that is still open come again, and must not be taken for old ones.
    """
    return record.seq * 4 - 1 if record.open else record.seq * 4


def partials(
    records: Iterable[Record], views: Iterable[VersionView]
) -> Iterator[tuple[str, Loaded]]:
    """What each partition of some versions of a space has of records, by its global name."""
    versions = list(views)
    for record in records:
        if not counts(record):
            continue
        for view in versions:
            packed = record.regions.get(view.version)
            if packed:
                advertised = record.kind == "advertisement"
                request = Request(advertised, record.id, record.host, unpack_regions(packed))
                for name, partial in view.route(request).items():
                    yield name, Loaded(partial, last_seq(record))
