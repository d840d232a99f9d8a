"""The file that a backup is, and whether it can be restored. Pure.

What is restored passes the checks that the API would have made: nothing comes back that could not
have been there. Each error names the place in the file.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.partition_map import PartitionMap
from configurators.state.network import with_host
from configurators.state.spaces import LoadedSpace
from configurators.store.keys import is_record_id
from configurators.store.model import NetworkDoc, RecordKind, SpaceDoc
from dispatcher.calls import MAX_LABEL, MAX_TTL, MIN_TTL
from dispatcher.errors import DispatcherError
from dispatcher.requests.intake.routing import check_size, filter_bytes
from dzflow.address import Scope
from dzflow.attribute import shown
from dzflow.errors import BadInput, DzflowError
from dzflow.filters import STORED_WORK, parse_filter
from dzflow.region import WIDTH
from dzflow.space import Space
from sdn.network.topology import Host

FORMAT = "dzflow backup 1"

_MAX_PARTITIONS = 10_000
_LATEST = 253_402_300_800.0  # the year 10000, in seconds since 1970


class BadBackup(BadInput):
    """A document that is not a backup, or one that cannot be restored here."""


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


def read_backup(data: bytes, network: NetworkDoc, max_filter: int | None = None) -> Backup:
    """A backup from its file; BadBackup if it cannot be restored into a network."""
    try:
        saved = msgspec.json.decode(data, type=Backup)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadBackup(f"this is not a backup of dzflow: {error}") from None
    if saved.format != FORMAT:
        raise BadBackup(f"this is a backup of the form {saved.format[:40]!r}, not {FORMAT!r}")
    hosts = _checked_hosts(saved.hosts, network)
    views = _checked_spaces(saved.spaces, network)
    _check_records(saved.records, hosts, views, max_filter)
    return replace(saved, spaces=[view.doc for view in views.values()])


def _checked_hosts(given: list[Host], network: NetworkDoc) -> set[str]:
    """The hosts of the network when those of the backup are there, too."""
    known = {host.id: host for host in network.hosts}
    seen: set[str] = set()
    for place, host in enumerate(given):
        at = f"hosts[{place}]"
        if host.id in seen:
            raise BadBackup(f"{at}: there are two hosts {shown(host.id)}")
        seen.add(host.id)
        if host == known.get(host.id):
            continue
        try:
            network = with_host(network, host)
        except BadInput as error:
            raise BadBackup(f"{at}: {error}") from None
    return {host.id for host in network.hosts}


def _checked_spaces(given: list[SpaceDoc], network: NetworkDoc) -> dict[str, LoadedSpace]:
    """The spaces by name."""
    found: dict[str, LoadedSpace] = {}
    names: dict[int, str] = {}
    for place, doc in enumerate(given):
        at = f"spaces[{place}]"
        if doc.name in found:
            raise BadBackup(f"{at}: there are two spaces {shown(doc.name)}")
        try:
            view = _checked_space(doc, network)
        except (BadInput, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise BadBackup(f"{at} ({shown(doc.name)}): {error}") from None
        if doc.number in names:
            other = names[doc.number]
            raise BadBackup(f"{at}: number {doc.number} is that of {shown(other)}, too")
        names[doc.number] = doc.name
        found[doc.name] = view
    return found


def _checked_space(doc: SpaceDoc, network: NetworkDoc) -> LoadedSpace:
    Scope(doc.number, doc.current).check()
    if set(doc.versions) != {doc.current} or doc.by:
        raise BadBackup("a saved space has one version, the current one, and no change in progress")
    version = doc.versions[doc.current]
    plan = network.pipeline.plan
    if version.map.plan != plan:
        raise BadBackup(f"it is for the plan {version.map.plan}, but this network has {plan}")
    space = Space.from_json(doc.name, version.schema)
    if plan == "lpm" and space.index.kind != "zorder":
        raise BadBackup("the plan lpm needs index.kind zorder")
    if (version.shapes is None) != (space.index.kind == "zorder"):
        raise BadBackup("an index of kind fields has a list of shapes, one of kind zorder has none")
    # The dictionary always has the shape that fixes nothing, too.
    most = space.index.shapes + 1
    if version.shapes is not None and len(version.shapes) > most:
        raise BadBackup(f"it has {len(version.shapes)} shapes, but at most {most} are allowed")
    _check_map(version.map)
    stored = replace(version, schema=space.to_json(), map_number=0, cutting=())
    return LoadedSpace.of(replace(doc, versions={doc.current: stored}))


def _check_map(given: PartitionMap) -> None:
    """A partition map tests each bit once at most on every path; under lpm in their order."""
    leaves = 0
    todo: list[tuple[Any, frozenset[int]]] = [(given.root, frozenset())]
    while todo:
        node, tested = todo.pop()
        if node is None:
            leaves += 1
            if leaves > _MAX_PARTITIONS:
                raise BadBackup(f"its partition map has more than {_MAX_PARTITIONS} partitions")
            continue
        if not 0 <= node.bit < WIDTH or node.bit in tested:
            raise BadBackup(f"its partition map tests bit {node.bit} twice, or there is none")
        if given.plan == "lpm" and (node.bit != len(tested) or node.open):
            raise BadBackup("its partition map does not test the bits of prefixes in their order")
        below = tested | {node.bit}
        todo += [(node.zero, below), (node.one, below)]
        if given.plan == "legs":
            todo.append((node.open, below))


def _check_records(
    given: list[SavedRecord],
    hosts: set[str],
    spaces: Mapping[str, LoadedSpace],
    max_filter: int | None,
) -> None:
    seen: set[str] = set()
    for place, record in enumerate(given):
        for problem in _faults(record, hosts, spaces, max_filter):
            raise BadBackup(f"records[{place}] ({shown(record.id)}): {problem}")
        if record.id in seen:
            raise BadBackup(f"records[{place}]: there are two records {record.id!r}")
        seen.add(record.id)


def _faults(
    record: SavedRecord,
    hosts: set[str],
    spaces: Mapping[str, LoadedSpace],
    max_filter: int | None,
) -> Iterator[str]:
    """What is wrong with a record, if anything."""
    space = spaces.get(record.space)
    if space is None:
        yield f"space: the backup has no space {shown(record.space)}"
        return
    begins = f"{record.kind[0]}{space.number:x}-"
    if not is_record_id(record.id) or not record.id.startswith(begins):
        yield f"id: no {record.kind} in space {record.space!r} has such an id"
    if record.host not in hosts:
        yield f"host: neither the network nor the backup has a host {shown(record.host)}"
    if record.label is not None and len(record.label) > MAX_LABEL:
        yield f"label: it has {len(record.label)} characters, but at most {MAX_LABEL} are allowed"
    if record.ttl is not None and not MIN_TTL <= record.ttl <= MAX_TTL:
        yield f"ttl: {record.ttl} is not within {MIN_TTL:g} to {MAX_TTL:g} seconds"
    if not math.isfinite(record.created) or not 0 <= record.created < _LATEST:
        yield f"created: {record.created} is no time in seconds since 1970"
    try:
        check_size(len(filter_bytes(record.filter)), max_filter)
        parse_filter(space.space, record.filter, STORED_WORK)
    except (DispatcherError, DzflowError) as error:
        yield f"filter: {error}"
