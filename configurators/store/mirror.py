"""Following a prefix of etcd: a snapshot first, then every change, across all interruptions.

`follow` is the one way to do this; `follow_key` does it for a single key. A `Mirror` keeps the
decoded current state of a prefix on top of it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from configurators.store.documents import BadDocument
from configurators.store.etcd.client import Compacted, Etcd, KeyPage, StoreUnavailable, WatchEvent
from dzflow.aio import log_failure

log = logging.getLogger(__name__)

D = TypeVar("D")

_RETRY = 0.5  # seconds before the next attempt when etcd does not answer


class KeyChange(Struct, frozen=True, gc=False):
    """The new value of a key at a revision; None if the key was deleted."""

    name: str  # the key without the prefix that is followed
    value: bytes | None
    revision: int


class Snapshot(Struct, frozen=True):
    """All keys under a prefix at a revision: a key that is not among them does not exist."""

    changes: list[KeyChange]
    revision: int


class Changes(Struct, frozen=True):
    """What changed since the previous update, in order, up to a revision."""

    changes: list[KeyChange]
    revision: int


Update: TypeAlias = Snapshot | Changes


async def read_snapshot(etcd: Etcd, prefix: str) -> Snapshot:
    """Read all keys under a prefix now; StoreError if etcd does not answer."""
    return _snapshot(await etcd.range(prefix), len(prefix))


async def follow(etcd: Etcd, prefix: str, after: int | None = None) -> AsyncGenerator[Update, None]:
    """Yield a snapshot of a prefix and then all changes, forever.

    With `after`, there is no snapshot at first, only the changes after that revision. When etcd has
    compacted changes that were not seen yet, another snapshot follows. While etcd does not answer,
    the generator retries.
    """
    skip = len(prefix)
    while True:
        try:
            if after is None:
                snapshot = await read_snapshot(etcd, prefix)
                yield snapshot
                after = snapshot.revision
            async with contextlib.aclosing(etcd.watch(prefix, after)) as batches:
                async for batch in batches:
                    changes = [_change(change, skip) for change in batch.events]
                    yield Changes(changes, batch.revision)
                    after = batch.revision
        except Compacted:
            log.info("etcd has compacted changes under %s; reading a new snapshot", prefix)
            after = None
        except StoreUnavailable as error:
            log.warning("cannot follow %s, retrying: %s", prefix, error)
            await asyncio.sleep(_RETRY)


class KeyValue(Struct, frozen=True, gc=False):
    """The value of a key, and the revision at which it was put."""

    value: bytes
    revision: int


async def follow_key(etcd: Etcd, key: str, newer_than: int = 0) -> AsyncGenerator[KeyValue, None]:
    """Yield the value of one key and each newer value, forever; deletions are left out.

    Values that were replaced before they were read may be skipped.
    """
    seen = newer_than
    async with contextlib.aclosing(follow(etcd, key)) as updates:
        async for update in updates:
            newest: KeyValue | None = None
            for change in update.changes:
                if not change.name and change.value is not None and change.revision > seen:
                    newest = KeyValue(change.value, change.revision)
            if newest:
                seen = newest.revision
                yield newest


OnChange: TypeAlias = Callable[[str, D | None, int], None]
"""Called with a key without the prefix, its value (None if it was deleted), and the revision."""


class Mirror(Generic[D]):
    """Keeps the decoded state of a prefix, and reports each change once, in order per key.

    `values` has the current state by key, without the prefix. When a value cannot be decoded, or
    `on_change` does not take it, the mirror logs that and keeps the value before it; `unusable` has
    the reason by key, until there is another value.
    """

    def __init__(
        self, etcd: Etcd, prefix: str, decode: Callable[[bytes], D], on_change: OnChange[D]
    ) -> None:
        self.values: dict[str, D] = {}
        self.unusable: dict[str, str] = {}
        self._etcd = etcd
        self._prefix = prefix
        self._decode = decode
        self._on_change = on_change
        self._revisions: dict[str, int] = {}  # of each key that exists
        # At this revision, no key existed but those in `_revisions`, and some that are gone by now.
        self._complete_at = 0
        self._read_at: dict[str, int] = {}  # the same for some keys, by what they begin with
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the current state, and follow changes in the background."""
        revision = await self.refresh()
        self._task = asyncio.create_task(self.run(revision), name=f"follow {self._prefix}")
        self._task.add_done_callback(log_failure)

    async def stop(self) -> None:
        """Stop following in the background."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def run(self, after: int | None = None) -> None:
        """Follow changes until cancelled, for callers that do not `start` it in the background."""
        async for update in follow(self._etcd, self._prefix, after):
            if isinstance(update, Snapshot):
                self._apply_snapshot(update)
            else:
                for change in update.changes:
                    self._apply(change)
                    # The next one may be of the same revision.
                    self._complete(change.revision - 1)

    def tasks(self) -> list["asyncio.Task[None]"]:
        """The background task; it never ends by itself."""
        return [self._task] if self._task else []

    async def refresh(self, under: str = "") -> int:
        """Read the state now, all of it or the keys that begin with `under`.

        All changes up to the returned revision have been reported then.
        """
        page = await self._etcd.range(self._prefix + under)
        self._apply_snapshot(_snapshot(page, len(self._prefix)), under)
        return page.revision

    def _apply_snapshot(self, snapshot: Snapshot, under: str = "") -> None:
        found = {change.name for change in snapshot.changes}
        for name, known in list(self._revisions.items()):
            if name.startswith(under) and name not in found and known <= snapshot.revision:
                self._apply(KeyChange(name, None, snapshot.revision))
        for change in snapshot.changes:
            self._apply(change)
        if under:
            self._read_at[under] = max(self._read_at.get(under, 0), snapshot.revision)
        else:
            self._complete(snapshot.revision)

    def _complete(self, revision: int) -> None:
        """All changes up to a revision are known."""
        if revision > self._complete_at:
            self._complete_at = revision
            if self._read_at:
                self._read_at = {u: at for u, at in self._read_at.items() if at > revision}

    def _known_at(self, name: str) -> int:
        """The latest revision at which it is known whether a key exists.

        An earlier state may come later: the answers to two reads can overtake each other.
        """
        read = (at for under, at in self._read_at.items() if name.startswith(under))
        return max(self._complete_at, *read, 0)

    def _apply(self, change: KeyChange) -> None:
        name, revision = change.name, change.revision
        known = self._revisions.get(name)
        if change.value is None:
            if known is None or revision < known:
                return
            del self._revisions[name]
            self.values.pop(name, None)
        elif revision <= (self._known_at(name) if known is None else known):
            return
        else:
            self._revisions[name] = revision
        self.unusable.pop(name, None)
        try:
            value = None
            if change.value is not None:
                value = self.values[name] = self._decode(change.value)
            self._on_change(name, value, revision)
        except Exception as error:
            # One bad document must not stop the mirror.
            self.unusable[name] = str(error) or type(error).__name__
            known = isinstance(error, BadDocument)
            text = "%s%s at revision %d is left out: %s"
            log.error(text, self._prefix, name, revision, error, exc_info=not known)


def _snapshot(page: KeyPage, skip: int) -> Snapshot:
    changes = [KeyChange(item.key[skip:], item.value, item.revision) for item in page.items]
    return Snapshot(changes, page.revision)


def _change(change: WatchEvent, skip: int) -> KeyChange:
    return KeyChange(change.key[skip:], change.value, change.revision)
