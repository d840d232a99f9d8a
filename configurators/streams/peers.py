"""Keeps a stream to every process that is registered under a prefix in etcd."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd
from configurators.store.mirror import Mirror
from configurators.store.model import Process
from configurators.streams.stream import CannotConnect, Connect, Habits, Hear, Stream, connect
from dzflow.aio import BackgroundTasks

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
        connect: Connect = connect,
    ) -> None:
        self._registered = Mirror(etcd, prefix, decode_process, self._registration_changed)
        self._prefix = prefix
        self._token = token
        self._hear = hear
        self._receives = receives
        self._on_open = on_open
        self._on_close = on_close
        self._name = name
        self._on_change = on_change
        self._habits = habits
        self._connect = connect
        self._streams: dict[str, Stream] = {}
        self._keeping: dict[str, tuple[Process, asyncio.Task[None]]] = {}
        self._tasks = BackgroundTasks()

    async def __aenter__(self) -> Self:
        await self._registered.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        streams = list(self._streams.values())
        await self._registered.stop()
        await self._tasks.cancel()
        for stream in streams:
            await stream.closed.wait()

    @property
    def processes(self) -> Mapping[str, Process]:
        """The processes that are registered, by id."""
        return self._registered.values

    def __getitem__(self, process: str) -> Stream | None:
        """The stream to a process, None if there is none at the moment."""
        return self._streams.get(process)

    def streams(self) -> dict[str, Stream]:
        """All streams that are open now, by process."""
        return dict(self._streams)

    def _registration_changed(self, name: str, process: Process | None, _: int) -> None:
        kept, task = self._keeping.get(name, (None, None))
        if process == kept:
            return  # registered once more, as before
        if task:
            task.cancel()
            del self._keeping[name]
        if process:
            task = self._tasks.spawn(self._keep(name, process), f"stream to {self._prefix}{name}")
            self._keeping[name] = process, task
        if self._on_change:
            self._on_change()

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
            stream = await self._connect(process.address, *common, opened)
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
