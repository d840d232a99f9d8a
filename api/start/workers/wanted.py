"""The workers that a service wants: the settings say how many at the first start, then etcd."""

import re
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from msgspec import Struct

from api.start.settings.settings import BadSettings, Part, Settings
from configurators.state.wanted import read_count
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, absent
from configurators.store.keys import wanted_key
from configurators.store.mirror import follow_key
from configurators.store.model import Wanted, WorkerKind

Counts = Mapping[WorkerKind, int]

KINDS: tuple[WorkerKind, ...] = ("southbound", "configurators")
"""The kinds of workers, in the order of their start."""

_PARTS: dict[WorkerKind, Part] = {"configurators": "configurator", "southbound": "southbound"}
_NAME = re.compile(r"(configurator|southbound)-([1-9]\d{0,5})")


class Worker(Struct, frozen=True):
    """A worker: the numbers of each kind begin with 1."""

    kind: WorkerKind
    number: int

    @property
    def part(self) -> Part:
        """The part of the service that it is."""
        return _PARTS[self.kind]

    @property
    def id(self) -> str:
        """Its name, which never changes: it owns partitions under it."""
        return f"{self.part}-{self.number}"


def parse_worker(id: str) -> Worker | None:
    """The worker with this name, None if no worker has it."""
    found = _NAME.fullmatch(id)
    if not found:
        return None
    kind = next(kind for kind, part in _PARTS.items() if part == found[1])
    return Worker(kind, int(found[2]))


def placed_kinds(settings: Settings) -> tuple[WorkerKind, ...]:
    """The kinds of workers that are placed on Ray, in the order of their start."""
    return KINDS if settings.southbound_placed == "ray" else ("configurators",)


async def load_or_store_counts(etcd: Etcd, settings: Settings) -> Counts:
    """The stored counts; where there is none, that of the settings is stored.

    Nobody counts workers that are not placed on Ray: all that are there are wanted. BadSettings if
    the settings have too few ports for the stored count.
    """
    counts: dict[WorkerKind, int] = {}
    for kind in KINDS:
        if kind not in placed_kinds(settings):
            await etcd.delete(wanted_key(kind))
            continue
        first = _setting(settings, kind)
        put = Put(wanted_key(kind), encode(Wanted(first)))
        await etcd.transact([absent(wanted_key(kind))], [put])
        stored = await etcd.get(wanted_key(kind))
        counts[kind] = read_count(stored.value if stored else None) or first
    ports = settings.openflow.ports
    if ports and len(ports) < counts.get("southbound", 0):
        raise BadSettings(
            f"openflow.ports: there are {len(ports)}, but {counts['southbound']} southbound"
            " processes are wanted by now (`dzflow southbound scale`); give one for each"
        )
    return counts


async def read_counts(etcd: Etcd, kinds: Iterable[WorkerKind] = KINDS) -> Counts:
    """The stored counts of these kinds, as soon as there are any."""
    counts: dict[WorkerKind, int] = {}
    for kind in kinds:
        async with aclosing(follow_key(etcd, wanted_key(kind))) as values:
            async for stored in values:
                if (count := read_count(stored.value)) is not None:
                    counts[kind] = count
                    break
    return counts


def find_other_counts(settings: Settings, counts: Counts) -> list[str]:
    """Remarks on counts that are given explicitly, but are not the stored ones."""
    return [
        f"{count} {_words(kind)} are started, not {_setting(settings, kind)}: from the second start"
        f" on, the stored number counts. Change it with `dzflow {kind} scale"
        f" {_setting(settings, kind)}`"
        for kind, count in counts.items()
        if kind in settings.model_fields_set and count != _setting(settings, kind)
    ]


def _setting(settings: Settings, kind: WorkerKind) -> int:
    return settings.configurators if kind == "configurators" else settings.southbound


def _words(kind: WorkerKind) -> str:
    return "configurators" if kind == "configurators" else "southbound processes"
