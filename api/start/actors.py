"""The workers as Ray actors. Ray places them and starts them anew; no data goes through Ray.

Each runs its service in a thread of its own, with an event loop of its own. If the service fails,
the process of the actor ends, and Ray starts another one, which begins from what etcd has.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import ray
import uvloop

from api.start import logs, parts
from api.start.settings import Settings
from api.start.settings_sources import restore
from configurators.gc_tuning import tune_garbage_collector

_log = logging.getLogger(__name__)
_STOP_SECONDS = 6.0
_PAUSE = 0.5

Service = Callable[[Settings, asyncio.Event], Awaitable[None]]


class Worker:
    """What both kinds of actors have in common."""

    def __init__(self, id: str, settings: dict[str, Any], **rest: Any) -> None:
        self._id = id
        self._settings = restore(settings)
        self._node = ray.get_runtime_context().get_node_id()
        self._rest = rest
        logs.configure(self._settings, id)
        _as_nice_as_others()
        tune_garbage_collector()
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=id, daemon=True).start()

    def ping(self) -> str:
        """The id, once the actor is there."""
        return self._id

    def stop(self) -> bool:
        """End the service in order; whether it has ended in time."""
        self._loop.call_soon_threadsafe(self._stop.set)
        return self._ended.wait(_STOP_SECONDS)

    def service(self, settings: Settings, stop: asyncio.Event) -> Awaitable[None]:
        """The work, until the event is set."""
        raise NotImplementedError

    def _run(self) -> None:
        _log.info("%s starts", self._id, extra={"pid": os.getpid(), "node": self._node})
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(_awaited(self.service, self._settings, self._stop))
        except BaseException:
            _log.critical("%s has failed and is started anew", self._id, exc_info=True)
            _exit()
        if not self._stop.is_set():
            _log.critical("%s has ended without being told and is started anew", self._id)
            _exit()
        _log.info("%s has ended", self._id)
        self._ended.set()


class Configurator(Worker):
    """A configurator: decides and pushes the flow changes of its partitions."""

    def service(self, settings: Settings, stop: asyncio.Event) -> Awaitable[None]:
        """Decide, push, acknowledge."""
        return parts.configurator(settings, self._id, self._node, self._rest["listen"]).run(stop)


class Southbound(Worker):
    """A southbound process: holds the connections to switches, and the fence."""

    def service(self, settings: Settings, stop: asyncio.Event) -> Awaitable[None]:
        """Carry out what configurators send."""
        return parts.southbound(
            settings, self._id, self._node, self._rest["listen"], self._rest["openflow"]
        ).run(stop)


# Not a method: Ray would take the actor for one whose calls are coroutines.
async def _awaited(service: Service, settings: Settings, stop: asyncio.Event) -> None:
    """Begin the work inside the event loop, and wait for its end."""
    await service(settings, stop)


def _exit() -> None:
    """End this process, for Ray to start another one; not too often, if it fails each time."""
    logging.shutdown()
    time.sleep(_PAUSE)
    os._exit(1)


def _as_nice_as_others() -> None:
    """Ray lowers the priority of workers unless it was started with RAY_worker_niceness=0."""
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        except PermissionError:
            _log.warning("this worker has a low priority; start Ray with RAY_worker_niceness=0")
