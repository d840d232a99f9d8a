"""The API as a child process: uvicorn on sockets that the parent has bound.

The parent keeps the sockets open, so that connections wait in them while the API process restarts.
"""

import asyncio
import resource
import socket as sockets
import sys
from contextlib import ExitStack, nullcontext
from functools import partial

import msgspec

from api.http.app import make_app
from api.http.border.server import Server
from api.http.context import Backend
from api.http.schema.service import SettingsOut
from api.start import child
from api.start.parts import common
from api.start.parts.api import (
    api_settings,
    balancer_options,
    balancing_policy,
    dispatcher_options,
    job_options,
)
from configurators.gc_tuning import tune_garbage_collector
from configurators.store import keys
from configurators.store.etcd.client import Etcd, StoreError
from configurators.tracing import Tracer
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import Part
from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError
from monitor.monitor import Monitor
from monitor.moves.decision import MoveLimits

_SWITCH_INTERVAL = 0.0005  # seconds for which another thread may delay requests


class NotStarted(DzflowError):
    """The application did not start."""


async def _work(self: child.Child, stop: asyncio.Event) -> None:
    settings = self.settings
    # Each connection needs a file descriptor; the default limit is about a thousand.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = dispatcher_options(settings, self.orders["node"])
    # Opened here and not by the application, so that the parent gets the reason if that fails.
    access = common.access(settings)
    around = common.environment(settings)
    dispatcher = Dispatcher(access, common.stream_token(settings), options, around)
    # The id is new at each start; the parent deletes the key if this process dies.
    self.report(registered=keys.DISPATCHERS + dispatcher.id)
    policy, balancing = balancing_policy(settings), balancer_options(settings)
    limits = MoveLimits(hand_over=settings.balancing.hand_over)
    monitor = Monitor(
        dispatcher,
        around,
        policy,
        balancing,
        limits,
        job_options(settings),
        settings.keep.history,
    )
    tracing = common.tracing(settings, "api", dispatcher.id)
    async with tracing as tracer, Etcd(access) as etcd, dispatcher, monitor:
        background = BackgroundTasks()
        try:
            await _serve(self, etcd, Backend(dispatcher, monitor), tracer, stop, background)
        finally:
            await background.cancel()


async def _ray(etcd: Etcd) -> list[Part]:
    """Whether Ray runs, which restarts the workers."""
    try:
        found = await etcd.get(keys.RAY)
    except StoreError as error:
        return [Part("ray", ok=False, reason=str(error))]
    reason = None if found else "Ray does not run; workers that die are not restarted"
    return [Part("ray", ok=found is not None, reason=reason)]


async def _serve(
    self: child.Child,
    etcd: Etcd,
    backend: Backend,
    tracer: Tracer | None,
    stop: asyncio.Event,
    background: BackgroundTasks,
) -> None:
    tls, api = self.settings.tls, api_settings(self.settings)
    app = make_app(
        api,
        lambda: nullcontext(backend),
        partial(_ray, etcd),
        tracer,
        msgspec.convert(self.orders["configured"], SettingsOut),
    )
    server = Server(app, api, tls.cert, tls.key, lambda: self.report(ready=True))
    app.state.context.metrics.watch_connections(server.table)
    tune_garbage_collector()
    sys.setswitchinterval(_SWITCH_INTERVAL)

    async def end() -> None:
        await stop.wait()
        app.state.context.readiness.draining = True
        # A load balancer in front of callers learns first that this process ends.
        await asyncio.sleep(self.settings.times.drain_delay)
        app.state.context.streams.stop()
        server.should_exit = True

    background.spawn(end(), "end the server")
    with ExitStack() as stack:
        given = [sockets.socket(fileno=number) for number in self.orders["sockets"]]
        await server.serve([stack.enter_context(each) for each in given])
    if not server.started:
        raise NotStarted("the application did not start; its log says why")


if __name__ == "__main__":
    child.run(_work)
