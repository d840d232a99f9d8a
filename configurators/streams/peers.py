"""Keeps a stream to every process that is registered under a prefix in etcd."""

import asyncio
import logging
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from configurators.store.documents import BadDocument, decode_process
from configurators.store.etcd.client import Etcd
from configurators.store.following import News, follow, whole
from configurators.store.model import Process
from configurators.streams.stream import CannotConnect, Habits, Hear, Stream, connect

log = logging.getLogger(__name__)

FIRST_RETRY, LONGEST_RETRY = 0.05, 2.0  # seconds

Told = Callable[[str, Stream], None]


class Peers:
    """Streams by the id of the process; use as an async context manager.

    A process is dialled as long as it is registered, again and again; its stream ends when it no
    longer is. `on_open` (before anything is heard) and `on_close` tell of streams, `on_change` of
    who is registered.
    """

    def __init__(
        self,
        etcd: Etcd,
        prefix: str,
        token: bytes,
        hear: Hear,
        receives: Any,
        on_open: Told | None = None,
        on_close: Told | None = None,
        *,
        name: str = "",
        on_change: Callable[[], None] | None = None,
        habits: Habits | None = None,
    ) -> None:
        self.processes: dict[str, Process] = {}
        self._etcd = etcd
        self._prefix = prefix
        self._token = token
        self._hear = hear
        self._receives = receives
        self._on_open = on_open
        self._on_close = on_close
        self._name = name
        self._on_change = on_change
        self._habits = habits
        self._streams: dict[str, Stream] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        page = await self._etcd.range(self._prefix)
        self._take(whole(page))
        self._following = asyncio.create_task(self._follow(page.revision))
        self._following.add_done_callback(_ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._following
        tasks = [self._following, *self._keeping.values()]
        streams = list(self._streams.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._ending, return_exceptions=True)
        for stream in streams:
            await stream.closed.wait()

    def __getitem__(self, process: str) -> Stream | None:
        """The stream to a process, None if there is none at the moment."""
        return self._streams.get(process)

    def streams(self) -> dict[str, Stream]:
        """All streams that are open now, by process."""
        return dict(self._streams)

    async def _follow(self, revision: int) -> None:
        async for news in follow(self._etcd, self._prefix, revision):
            self._take(news)

    def _take(self, news: News) -> None:
        found = {} if news.whole else dict(self.processes)
        for change in news.changes:
            name = change.key.removeprefix(self._prefix)
            found.pop(name, None)
            if change.value is not None:
                try:
                    found[name] = decode_process(change.value)
                except BadDocument as error:
                    log.error("%s cannot be reached: %s", change.key, error)
        before, self.processes = self.processes, found
        for name, process in before.items():
            if found.get(name) != process:
                self._release(name)
        for name, process in found.items():
            if name not in self._keeping:
                self._keeping[name] = task = asyncio.create_task(self._keep(name, process))
                task.add_done_callback(_ended)
        if found != before and self._on_change:
            self._on_change()

    def _release(self, name: str) -> None:
        task = self._keeping.pop(name)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _keep(self, name: str, process: Process) -> None:
        """Have a stream to a process, until cancelled."""
        pause = FIRST_RETRY
        while True:
            if await self._use(name, process):
                pause = FIRST_RETRY
            # Those who lost the same process do not all come back at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            pause = min(2 * pause, LONGEST_RETRY)

    async def _use(self, name: str, process: Process) -> bool:
        """Connect to a process, and return when the stream is over; False if there was none."""
        used: Stream | None = None

        def opened(stream: Stream) -> None:
            nonlocal used
            if stream.peer and stream.peer != name:
                stream.cut(f"{stream.peer} is at {process.address} now")
                return
            used = self._streams[name] = stream
            if self._on_open:
                self._on_open(name, stream)

        common = self._token, self._hear, self._receives, self._name, self._habits
        try:
            stream = await connect(process.address, *common, opened)
            await stream.closed.wait()
            log.info("%s%s is lost: %s", self._prefix, name, stream.reason)
        except CannotConnect as error:
            log.info("%s%s is not reached: %s", self._prefix, name, error)
        finally:
            if used is not None:
                if self._streams.get(name) is used:
                    del self._streams[name]
                used.close("the process is not registered any more, or nobody needs it")
                if self._on_close:
                    self._on_close(name, used)
        return used is not None


def _ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("a stream is no longer kept", exc_info=error)
