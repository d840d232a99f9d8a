"""How many workers a service wants: what was said last, by the settings or while it runs.

The settings count when they name a number for the first time, or another one than the last time. So
a changed setting scales the service at its next start, and a setting that stays the same does not
undo what `POST /configurators` has done.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from msgspec import Struct

from api.start.settings.settings import BadSettings, Part, Settings
from configurators.state.wanted import read_count, read_wanted
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, unchanged
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
    """The wanted counts, after the settings have been applied.

    Nobody counts workers that are not placed on Ray: all that are there are wanted. BadSettings if
    the settings have too few ports for the count.
    """
    await forget_uncounted(etcd, settings)
    return {kind: await _apply(etcd, settings, kind) for kind in placed_kinds(settings)}


async def forget_uncounted(etcd: Etcd, settings: Settings) -> None:
    """Delete the counts of kinds that are not placed on Ray."""
    for kind in KINDS:
        if kind not in placed_kinds(settings):
            await etcd.delete(wanted_key(kind))


async def _apply(etcd: Etcd, settings: Settings, kind: WorkerKind) -> int:
    while True:
        stored = await etcd.get(wanted_key(kind))
        old = read_wanted(stored.value if stored else None)
        new = apply_setting(old, _setting(settings, kind), kind in settings.model_fields_set)
        ports = settings.openflow.ports if kind == "southbound" else ()
        if ports and len(ports) < new.count:
            raise BadSettings(
                f"openflow.ports: there are {len(ports)}, but {new.count} southbound processes"
                " are wanted by now (`dzflow southbound scale`); give one for each"
            )
        compare = unchanged(wanted_key(kind), stored.revision if stored else 0)
        put = Put(wanted_key(kind), encode(new))
        if new == old or (await etcd.transact([compare], [put])).succeeded:
            return new.count


def apply_setting(stored: Wanted | None, setting: int, named: bool) -> Wanted:
    """What is wanted after a start with this setting; `named` says whether it is not a default."""
    if stored is None:
        return Wanted(setting, setting if named else None)
    if named and setting != stored.given:
        return Wanted(setting, setting)
    return stored


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
    """Remarks on counts that are given explicitly, but were changed while the service ran."""
    return [
        f"{count} {_words(kind)} are started, not {_setting(settings, kind)}: the number was"
        " changed since the settings last named it. Change it with"
        f" `dzflow {kind} scale {_setting(settings, kind)}`"
        for kind, count in counts.items()
        if kind in settings.model_fields_set and count != _setting(settings, kind)
    ]


def _setting(settings: Settings, kind: WorkerKind) -> int:
    return settings.configurators if kind == "configurators" else settings.southbound


def _words(kind: WorkerKind) -> str:
    return "configurators" if kind == "configurators" else "southbound processes"
