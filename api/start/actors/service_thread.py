"""Runs the service of a worker in a thread of its Ray actor, with an event loop of its own."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import ray
import uvloop

from api.start import logs
from api.start.hardening import harden_process
from api.start.settings.settings import Settings
from api.start.settings.sources import restore
from configurators.gc_tuning import tune_garbage_collector

_log = logging.getLogger(__name__)
_STOP_SECONDS = 6.0
_PAUSE = 0.5

Service = Callable[[Settings, str, asyncio.Event], Awaitable[None]]
"""Works with these settings, on this node, until the event is set."""


class ServiceThread:
    """Runs a service in a thread; if the service fails, this process ends."""

    def __init__(self, id: str, settings: dict[str, Any], service: Service) -> None:
        self.id = id
        self._settings = restore(settings)
        self.node: str = ray.get_runtime_context().get_node_id()
        self._service = service
        harden_process()  # a cluster that was joined has not done it
        logs.configure(self._settings, id)
        _reset_priority()
        tune_garbage_collector()
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=id, daemon=True).start()

    def stop(self) -> bool:
        """End the service in order; whether it has ended in time."""
        self._loop.call_soon_threadsafe(self._stop.set)
        return self._ended.wait(_STOP_SECONDS)

    async def _serve(self) -> None:
        # The service is made inside the event loop that it runs on.
        await self._service(self._settings, self.node, self._stop)

    def _run(self) -> None:
        _log.info("%s starts", self.id, extra={"pid": os.getpid(), "node": self.node})
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._serve())
        except BaseException:
            _log.critical("%s has failed; Ray restarts it", self.id, exc_info=True)
            _exit()
        if not self._stop.is_set():
            _log.critical("%s has ended without being told to; Ray restarts it", self.id)
            _exit()
        _log.info("%s has ended", self.id)
        self._ended.set()


def node_address() -> str:
    """The address of the node that this actor runs on."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def _exit() -> None:
    """End this process after a pause: a service that fails at once is not restarted too often."""
    logging.shutdown()
    time.sleep(_PAUSE)
    os._exit(1)


def _reset_priority() -> None:
    """Ray lowers the priority of workers unless it was started with RAY_worker_niceness=0."""
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        except PermissionError:
            _log.warning("this worker has a low priority; start Ray with RAY_worker_niceness=0")
