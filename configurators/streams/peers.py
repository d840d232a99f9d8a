"""Keeps a stream to every process that is registered under a prefix in etcd."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd
from configurators.store.mirror import Mirror
from configurators.store.model import Process
from configurators.streams.listener import CannotConnect, Connect, connect
from configurators.streams.stream import OnMessage, Receives, Stream, StreamOptions
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

FIRST_RETRY, LONGEST_RETRY = 0.05, 2.0  # seconds

OnStream = Callable[[str, Stream], None]
"""Called with the id of a process, and the stream to it."""

OpenStream = Callable[[str, OnMessage, Receives], Awaitable[Stream]]
"""Opens a stream to the process at an address, under the name of this one; given are what handles
its messages, and the union of their types. CannotConnect if that is not possible."""


class Peers:
    """Streams by the id of the process; use as an async context manager.

    `Peers` connects to each process for as long as the process is registered, again after each
    failure, and closes the stream when it no longer is. `on_open` (before any message is handled)
    and `on_close` report streams, `on_change` that a process was registered or is gone.
    """

    def __init__(
        self,
        etcd: Etcd,
        prefix: str,
        token: bytes,
        on_message: OnMessage,
        receives: Receives,
        on_open: OnStream | None = None,
        on_close: OnStream | None = None,
        *,
        name: str = "",
        on_change: Callable[[], None] | None = None,
        options: StreamOptions | None = None,
        connect: Connect = connect,
    ) -> None:
        self._registered = Mirror(etcd, prefix, decode_process, self._registration_changed)
        self._prefix = prefix
        self._token = token
        self._on_message = on_message
        self._receives = receives
        self._on_open = on_open
        self._on_close = on_close
        self._name = name
        self._on_change = on_change
        self._options = options
        self._connect = connect
        self._revisions: dict[str, int] = {}
        self._streams: dict[str, Stream] = {}
        self._connecting: dict[str, tuple[Process, asyncio.Task[None]]] = {}
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

    async def refresh(self) -> None:
        """Read now which processes are registered."""
        await self._registered.refresh()

    def revision(self, process: str) -> int:
        """The revision at which a process was registered; 0 if it is not."""
        return self._revisions.get(process, 0)

    def streams(self) -> dict[str, Stream]:
        """All streams that are open now, by process."""
        return dict(self._streams)

    def _registration_changed(self, name: str, process: Process | None, revision: int) -> None:
        if process:
            self._revisions[name] = revision
        else:
            self._revisions.pop(name, None)
        known, task = self._connecting.get(name, (None, None))
        if process == known:
            return  # registered once more, as before
        if task:
            task.cancel()
            del self._connecting[name]
        if process:
            work = self._stay_connected(name, process)
            task = self._tasks.spawn(work, f"stream to {self._prefix}{name}")
            self._connecting[name] = process, task
        if self._on_change:
            self._on_change()

    async def _stay_connected(self, name: str, process: Process) -> None:
        """Connect to a process, again and again, until cancelled."""
        pause = FIRST_RETRY
        while True:
            if await self._use_stream(name, process):
                pause = FIRST_RETRY
            # Not all peers of a process that was restarted connect at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            pause = min(2 * pause, LONGEST_RETRY)

    async def _use_stream(self, name: str, process: Process) -> bool:
        """Connect, and return when the stream has ended; False if there was none."""
        used: Stream | None = None

        def opened(stream: Stream) -> None:
            nonlocal used
            if stream.peer and stream.peer != name:
                stream.cut(f"{stream.peer} is at {process.address} now")
                return
            used = self._streams[name] = stream
            if self._on_open:
                self._on_open(name, stream)

        common = self._token, self._on_message, self._receives, self._name, self._options
        try:
            stream = await self._connect(process.address, *common, opened)
            await stream.closed.wait()
            log.info("the stream to %s%s is lost: %s", self._prefix, name, stream.reason)
        except CannotConnect as error:
            log.info("%s%s cannot be reached: %s", self._prefix, name, error)
        finally:
            if used is not None:
                if self._streams.get(name) is used:
                    del self._streams[name]
                used.close("the process is no longer registered, or its peer stops")
                if self._on_close:
                    self._on_close(name, used)
        return used is not None
