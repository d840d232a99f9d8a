"""Following a prefix of the store: all that is there, then every change, over all interruptions."""

import asyncio
import logging
from collections.abc import Callable

from configurators.store.etcd.client import Change, Etcd
from configurators.store.following import follow

_log = logging.getLogger(__name__)

Take = Callable[[str, bytes | None, int], None]
"""Called with a key (without the prefix), its value or None if it is gone, and the revision."""


class Follower:
    """Keeps somebody up to date with a prefix. Each change is told once, and in order per key."""

    def __init__(self, etcd: Etcd, prefix: str, take: Take) -> None:
        self._etcd = etcd
        self._prefix = prefix
        self._take = take
        self._known: dict[str, int] = {}  # the revision of each key that is there
        self._gone = 0  # keys that are not known are not there, as of this revision
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what is there, and go on in the background."""
        revision = await self.refresh()
        self._task = asyncio.create_task(self._follow(revision), name=f"follow {self._prefix}")
        self._task.add_done_callback(complain)

    async def stop(self) -> None:
        """Follow no more."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def tasks(self) -> list["asyncio.Task[None]"]:
        """What goes on in the background, and never ends by itself."""
        return [self._task] if self._task else []

    async def refresh(self, under: str = "") -> int:
        """Read now, all or what begins so; all changes up to the returned revision are told."""
        page = await self._etcd.range(self._prefix + under)
        self._take_all(
            [Change(i.key, i.value, i.revision) for i in page.items], page.revision, under
        )
        return page.revision

    def _take_all(self, changes: list[Change], revision: int, under: str = "") -> None:
        """Take up all there is at a revision; what is not among it, and not newer, is gone."""
        found = {change.key[len(self._prefix) :]: change for change in changes}
        for key, known in list(self._known.items()):
            if key.startswith(under) and key not in found and known <= revision:
                self._note(key, None, revision)
        for key, change in found.items():
            self._note(key, change.value, change.revision)
        if not under:
            self._gone = max(self._gone, revision)

    def _note(self, key: str, value: bytes | None, revision: int) -> None:
        known = self._known.get(key)
        if value is None:
            if known is None or revision < known:
                return
            del self._known[key]
        elif revision <= (self._gone if known is None else known):
            return
        else:
            self._known[key] = revision
        try:
            self._take(key, value, revision)
        except Exception:
            # It must not keep us from all that comes after it.
            _log.exception("%s%s of revision %d is left out", self._prefix, key, revision)

    async def _follow(self, revision: int) -> None:
        async for news in follow(self._etcd, self._prefix, revision):
            if news.whole:
                self._take_all(news.changes, news.revision)
            else:
                for change in news.changes:
                    self._note(change.key[len(self._prefix) :], change.value, change.revision)


def complain(task: "asyncio.Task[None]") -> None:
    """Tell that something has ended that should go on; for `add_done_callback`."""
    if not task.cancelled() and (error := task.exception()):
        _log.error("%s is no longer done", task.get_name(), exc_info=error)
