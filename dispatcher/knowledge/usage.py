"""How many records and bytes each host and each space has, and whether it may have more.

A dispatcher counts the records that it makes and removes itself. With others beside it, it knows of
theirs only when it has counted all that are stored; in between it assumes that each of the others
gains as many records as it does itself. So a quota may be reached a little early, and then all
records are counted again. While it makes records, it also counts them every now and then, and
whenever another dispatcher joins or is gone.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from configurators.environment import Clock
from configurators.store.etcd.client import Compacted, Etcd, StoreError
from configurators.store.keys import RECORDS
from configurators.store.model import RecordKind
from dispatcher.errors import QuotaReached
from dispatcher.knowledge.siblings import Siblings

_log = logging.getLogger(__name__)

_OVERHEAD = 400  # bytes of a record beside its filter, about
_PAGE = 1_000
_ALONE_EVERY, _BESIDE_EVERY = 600.0, 20.0  # seconds between counts
_DOUBT_EVERY = 5.0  # the same, if a refusal rests on what others are assumed to have made
# A count that takes long is followed by a pause of so many times its duration.
_DUTY, _DOUBT_DUTY = 20, 2
_RETRY_AFTER, _RETRY_AFTER_DOUBT = 30.0, 3.0
_PAUSE = 2.0
_TRIES = 5  # to count, if etcd forgets the revision that is counted

_encode = msgspec.msgpack.Encoder().encode


class Quotas(Struct, frozen=True):
    """The most records and bytes of a host, and of a space; None means no limit."""

    host_records: int | None = None
    host_bytes: int | None = None
    space_records: int | None = None
    space_bytes: int | None = None


class Counted(Protocol):
    """A record, or what a caller wants to become one."""

    @property
    def host(self) -> str:
        """The host."""

    @property
    def space(self) -> str:
        """The space's name."""

    @property
    def filter(self) -> Any:
        """The filter, as the caller gave it."""


class _Stored(Struct, frozen=True, array_like=True, gc=False):
    """The beginning of a stored record: as much of it as has to be read to count it."""

    id: str
    kind: str
    host: str
    space: str
    filter: msgspec.Raw
    regions: msgspec.Raw
    state: str
    seq: int
    created: float
    by: str = ""
    acknowledged: float | None = None

    @property
    def is_active_subscription(self) -> bool:
        """Whether switches deliver to it; also while it is being removed."""
        return self.kind == "subscription" and self.acknowledged is not None


_decoder = msgspec.msgpack.Decoder(_Stored)


def weight(filter: Any) -> int:
    """The bytes that a record counts for; a filter that cannot be encoded is refused later."""
    try:
        size = len(_encode(filter))
    except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
        size = 0
    return _OVERHEAD + size


class Tally:
    """The records and bytes of a host or space: as counted, and what this dispatcher did since."""

    __slots__ = ("bytes", "made", "made_bytes", "records", "removed", "removed_bytes")

    def __init__(self, records: int = 0, bytes: int = 0) -> None:
        self.records, self.bytes = records, bytes
        self.made = self.made_bytes = self.removed = self.removed_bytes = 0

    def used(self, dispatchers: int) -> tuple[int, int]:
        """Records and bytes that there may be, with so many dispatchers.

        If each keeps what it gains below its part of the room that was left, all together keep to
        the quota; one that has lost some knows only that these are gone.
        """
        gain, gain_bytes = self.made - self.removed, self.made_bytes - self.removed_bytes
        return (
            self.records + gain * (dispatchers if gain > 0 else 1),
            self.bytes + gain_bytes * (dispatchers if gain_bytes > 0 else 1),
        )

    def settled(self) -> "Tally":
        """The same, if no other dispatcher has done anything since the last count."""
        return Tally(*self.used(1))


_NOTHING = Tally()
_ACTIVE = ""  # the key of the tally of active subscriptions


class Usage:
    """Counts the records and bytes of hosts and spaces, and holds them to the quotas."""

    def __init__(self, etcd: Etcd, siblings: Siblings, quotas: Quotas, clock: Clock) -> None:
        self._etcd = etcd
        self._siblings = siblings
        self._quotas = quotas
        self._clock = clock
        self._hosts: dict[str, Tally] = {}
        self._spaces: dict[str, Tally] = {}
        self._active = {_ACTIVE: Tally()}
        self._counted_at = clock.monotonic()  # when the last count ended
        self._duration = 0.0  # of the last count, in seconds
        self._counting = False
        self._settled = 0  # how often tallies were replaced without a count
        self._count_soon = asyncio.Event()
        siblings.joined.subscribe(self._sibling_joined)
        siblings.gone.subscribe(self._sibling_gone)

    def reserve(self, wanted: Counted) -> None:
        """Count a record that is about to be made; QuotaReached if there may be no more."""
        size = weight(wanted.filter)
        self._check(wanted, 1, size)
        self._add(wanted, size)

    def check(self, wanted: Counted) -> None:
        """QuotaReached if a record could not be made now; nothing is reserved."""
        self._check(wanted, 1, weight(wanted.filter))

    def check_growth(self, record: Counted, filter: Any) -> None:
        """QuotaReached if a record may not have this filter instead of its own."""
        more = weight(filter) - weight(record.filter)
        if more > 0:
            self._check(record, 0, more)

    def add(self, record: Counted) -> None:
        """Count a record, whatever the quotas say."""
        self._add(record, weight(record.filter))

    def remove(self, record: Counted) -> None:
        """A record is gone, or was not made after all."""
        size = weight(record.filter)
        for tally in self._tallies(record):
            tally.removed += 1
            tally.removed_bytes += size

    def change(self, record: Counted, filter: Any) -> None:
        """A record has this filter now, instead of its own."""
        more = weight(filter) - weight(record.filter)
        if more:
            for tally in self._tallies(record):
                tally.made_bytes += max(0, more)
                tally.removed_bytes += max(0, -more)

    def records(self) -> int:
        """How many records there are, as far as this dispatcher knows."""
        return sum(tally.used(1)[0] for tally in self._spaces.values())

    def activated(self, kind: RecordKind) -> None:
        """Count a record that has become active."""
        if kind == "subscription":
            self._active[_ACTIVE].made += 1

    def deactivated(self, kind: RecordKind) -> None:
        """A record that was active is gone."""
        if kind == "subscription":
            self._active[_ACTIVE].removed += 1

    def active_subscriptions(self) -> int:
        """How many subscriptions switches deliver to, as far as this dispatcher knows."""
        return max(0, self._active[_ACTIVE].used(1)[0])

    def check_all(self, wanted: Iterable[Counted]) -> None:
        """QuotaReached if these records, and no others, would be more than there may be."""
        hosts: dict[str, Tally] = {}
        spaces: dict[str, Tally] = {}
        for each in wanted:
            size = weight(each.filter)
            for tallies, name in ((hosts, each.host), (spaces, each.space)):
                tally = tallies.setdefault(name, Tally())
                tally.records += 1
                tally.bytes += size
        for name, tally in hosts.items():
            self._check_host(name, tally, 1)
        for name, tally in spaces.items():
            self._check_space(name, tally, 1)

    async def start(self) -> None:
        """Count all stored records; if etcd is compacted again and again, `run` counts them."""
        self._count_soon.clear()
        try:
            await self.count()
        except Compacted as error:
            _log.warning("the records of each host are counted later: %s", error)
            self._count_soon.set()

    async def run(self) -> None:
        """Count all stored records again when it is needed, until cancelled."""
        while True:
            await self._count_soon.wait()
            self._count_soon.clear()
            try:
                await self.count()
            except StoreError as error:
                _log.warning("the records of each host cannot be counted yet: %s", error)
                self._count_soon.set()
                await asyncio.sleep(_PAUSE)

    async def count(self) -> None:
        """Count all stored records; exact if this dispatcher has nothing in progress."""
        began = self._clock.monotonic()
        self._counting = True
        try:
            for left in reversed(range(_TRIES)):
                settled = self._settled
                try:
                    hosts, spaces, active = await self._count()
                except Compacted:
                    if not left:
                        raise
                    continue  # the pages to come are gone: begin again at the present revision
                if settled == self._settled:
                    self._hosts, self._spaces, self._active = hosts, spaces, active
                    return
            self._count_soon.set()
        finally:
            self._counting = False
            self._counted_at = self._clock.monotonic()
            self._duration = self._counted_at - began

    async def _count(self) -> tuple[dict[str, Tally], dict[str, Tally], dict[str, Tally]]:
        page = await self._etcd.range(RECORDS, limit=_PAGE)
        before_hosts = {name: _done(tally) for name, tally in self._hosts.items()}
        before_spaces = {name: _done(tally) for name, tally in self._spaces.items()}
        hosts: dict[str, Tally] = {}
        before_active = {name: _done(tally) for name, tally in self._active.items()}
        spaces: dict[str, Tally] = {}
        active = {_ACTIVE: Tally()}
        while True:
            for item in page.items:
                try:
                    stored = _decoder.decode(item.value)
                except msgspec.MsgspecError:
                    continue  # those that load records report it
                active[_ACTIVE].records += stored.is_active_subscription
                size = _OVERHEAD + len(bytes(stored.filter))
                for tallies, name in ((hosts, stored.host), (spaces, stored.space)):
                    tally = tallies.get(name)
                    if tally is None:
                        tally = tallies[name] = Tally()
                    tally.records += 1
                    tally.bytes += size
            if not page.more:
                break
            after = page.items[-1].key
            # All pages are read as they were when the first one was.
            page = await self._etcd.range(RECORDS, after, limit=_PAGE, revision=page.revision)
        return (
            _since(hosts, self._hosts, before_hosts),
            _since(spaces, self._spaces, before_spaces),
            _since(active, self._active, before_active),
        )

    def _sibling_joined(self, id: str) -> None:  # noqa: ARG002
        """The counts so far are exact if no other dispatcher was there until now."""
        if len(self._siblings.alive) == 2:
            self._settled += 1
            self._hosts = {name: tally.settled() for name, tally in self._hosts.items()}
            self._spaces = {name: tally.settled() for name, tally in self._spaces.items()}
        self._count_soon.set()

    def _sibling_gone(self, id: str) -> None:  # noqa: ARG002
        self._count_soon.set()

    def _count_if_older(self, seconds: float, duty: int = _DUTY) -> None:
        """Have all records counted if the last count is older, and if counts are not too many."""
        pause = max(seconds, self._duration * duty)
        if not self._counting and self._clock.monotonic() - self._counted_at > pause:
            self._count_soon.set()

    def _check(self, wanted: Counted, records: int, size: int) -> None:
        dispatchers = len(self._siblings.alive)
        try:
            self._check_both(wanted, dispatchers, records, size)
        except QuotaReached as error:
            if dispatchers == 1:
                self._count_if_older(_ALONE_EVERY)
                raise
            try:
                self._check_both(wanted, 1, records, size)
            except QuotaReached:
                self._count_if_older(_BESIDE_EVERY)
                raise
            self._count_if_older(_DOUBT_EVERY, _DOUBT_DUTY)
            raise QuotaReached(str(error), _RETRY_AFTER_DOUBT) from None

    def _check_both(self, wanted: Counted, dispatchers: int, records: int, size: int) -> None:
        host = self._hosts.get(wanted.host) or _NOTHING
        space = self._spaces.get(wanted.space) or _NOTHING
        self._check_host(wanted.host, host, dispatchers, records, size)
        self._check_space(wanted.space, space, dispatchers, records, size)

    def _check_host(
        self, name: str, tally: Tally, dispatchers: int, records: int = 0, size: int = 0
    ) -> None:
        used, used_bytes = tally.used(dispatchers)
        quotas = self._quotas
        if quotas.host_records is not None and used + records > quotas.host_records:
            raise _too_many(f"host {name}", quotas.host_records, "host")
        if quotas.host_bytes is not None and used_bytes + size > quotas.host_bytes:
            raise _too_large(f"host {name}", quotas.host_bytes, "host")

    def _check_space(
        self, name: str, tally: Tally, dispatchers: int, records: int = 0, size: int = 0
    ) -> None:
        used, used_bytes = tally.used(dispatchers)
        quotas = self._quotas
        if quotas.space_records is not None and used + records > quotas.space_records:
            raise _too_many(f"space {name}", quotas.space_records, "space")
        if quotas.space_bytes is not None and used_bytes + size > quotas.space_bytes:
            raise _too_large(f"space {name}", quotas.space_bytes, "space")

    def _add(self, record: Counted, size: int) -> None:
        for tally in self._tallies(record):
            tally.made += 1
            tally.made_bytes += size
        if len(self._siblings.alive) > 1:
            self._count_if_older(_BESIDE_EVERY)

    def _tallies(self, record: Counted) -> tuple[Tally, Tally]:
        host = self._hosts.get(record.host)
        if host is None:
            host = self._hosts[record.host] = Tally()
        space = self._spaces.get(record.space)
        if space is None:
            space = self._spaces[record.space] = Tally()
        return host, space


def _too_many(name: str, most: int, kind: str) -> QuotaReached:
    text = f"{name} may have {most} subscriptions and advertisements (limits.{kind}_records)"
    return QuotaReached(f"{text}; end some first", _RETRY_AFTER)


def _too_large(name: str, most: int, kind: str) -> QuotaReached:
    text = f"the subscriptions and advertisements of {name} may have {most} bytes"
    return QuotaReached(
        f"{text} (limits.{kind}_bytes); end some, or use smaller filters", _RETRY_AFTER
    )


_Done = tuple[int, int, int, int]


def _done(tally: Tally) -> _Done:
    return tally.made, tally.made_bytes, tally.removed, tally.removed_bytes


def _since(
    counted: dict[str, Tally], known: dict[str, Tally], before: dict[str, _Done]
) -> dict[str, Tally]:
    """What was counted, with what was done while it was counted."""
    for name, tally in known.items():
        made, made_bytes, removed, removed_bytes = before.get(name, (0, 0, 0, 0))
        if _done(tally) == (made, made_bytes, removed, removed_bytes):
            continue
        found = counted.setdefault(name, Tally())
        found.made, found.made_bytes = tally.made - made, tally.made_bytes - made_bytes
        found.removed = tally.removed - removed
        found.removed_bytes = tally.removed_bytes - removed_bytes
    return counted
