"""The whole service on this machine, as a context manager."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from api.start.parts import common
from api.start.roles import Only
from api.start.settings.settings import Settings
from api.start.supervisor import Supervisor
from configurators.store.etcd.client import Access
from configurators.store.model import NetworkDoc

T = TypeVar("T")


def _nobody(_: str) -> None:
    """Tell nobody."""


def _nothing() -> None:
    """Do nothing."""


class Service:
    """Starts everything when it is entered, and stops it when it is left.

    `only` starts some parts alone (`roles.py`). `tell` is called with texts
    about the progress, and `on_locked` once the data folder is locked; both from another thread. If
    this process is killed, its children end with it.
    """

    def __init__(
        self,
        settings: Settings,
        only: Only | None = None,
        tell: Callable[[str], None] = _nobody,
        on_locked: Callable[[], None] = _nothing,
    ) -> None:
        self._supervisor = Supervisor(settings, only, tell, on_locked)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self._thread.start()
        starting = self._call(self._supervisor.start())
        try:
            starting.result()
        except BaseException:
            starting.cancel()
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def url(self) -> str:
        """The address of the API."""
        return self._supervisor.url

    @property
    def hints(self) -> list[str]:
        """Remarks on settings that work, but perhaps not as they are meant."""
        return self._supervisor.hints

    @property
    def settings(self) -> Settings:
        """The settings, completed with ports and secrets that were chosen at the start."""
        return self._supervisor.settings

    @property
    def access(self) -> Access:
        """The access to its etcd."""
        return common.access(self.settings)

    @property
    def network(self) -> NetworkDoc:
        """The network as it was at the start."""
        assert self._supervisor.network is not None
        return self._supervisor.network

    @property
    def lab(self) -> str | None:
        """The name of the Open vSwitch lab, if there is one."""
        return self._supervisor.lab

    @property
    def pids(self) -> dict[str, int]:
        """Its child processes by name: etcd, workers, network, api-1, …"""
        return self._supervisor.pids

    def force(self) -> None:
        """Speed up a stop in progress by killing; may be called from a signal handler."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._supervisor.force)

    def _end(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        try:
            self._call(self._supervisor.stop()).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
