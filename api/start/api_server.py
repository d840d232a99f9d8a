"""The API as a child process: uvicorn on a socket that the parent has bound.

The parent keeps the socket open, so that connections wait in it while the API process restarts.
"""

import asyncio
import resource
import socket as sockets
import sys
from contextlib import nullcontext
from functools import partial

from api.http.app import make_app
from api.http.border.server import Server
from api.start import child, parts
from configurators.gc_tuning import tune_garbage_collector
from configurators.store import keys
from configurators.store.etcd.client import Etcd, StoreError
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import Part
from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError

_SWITCH_INTERVAL = 0.0005  # seconds for which another thread may delay requests


class NotStarted(DzflowError):
    """The application did not start."""


async def _work(self: child.Child, stop: asyncio.Event) -> None:
    settings = self.settings
    # Each connection needs a file descriptor; the default limit is about a thousand.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = parts.dispatcher_options(settings, self.orders["node"])
    # Opened here and not by the application, so that the parent gets the reason if that fails.
    access = parts.access(settings)
    around = parts.environment(settings)
    dispatcher = Dispatcher(access, parts.stream_token(settings), options, around)
    # The id is new at each start; the parent deletes the key if this process dies.
    self.report(registered=keys.DISPATCHERS + dispatcher.id)
    async with Etcd(access) as etcd, dispatcher:
        background = BackgroundTasks()
        try:
            await _serve(self, etcd, dispatcher, stop, background)
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
    dispatcher: Dispatcher,
    stop: asyncio.Event,
    background: BackgroundTasks,
) -> None:
    tls, api = self.settings.tls, parts.api_settings(self.settings)
    app = make_app(
        api,
        lambda: nullcontext(dispatcher),
        partial(_ray, etcd),
    )
    server = Server(app, api, tls.cert, tls.key, lambda: self.report(ready=True))
    app.state.context.metrics.watch_connections(server.table)
    tune_garbage_collector()
    sys.setswitchinterval(_SWITCH_INTERVAL)

    async def end() -> None:
        await stop.wait()
        app.state.context.streams.stop()
        server.should_exit = True

    background.spawn(end(), "end the server")
    with sockets.socket(fileno=self.orders["socket"]) as listener:
        await server.serve([listener])
    if not server.started:
        raise NotStarted("the application did not start; its log says why")


if __name__ == "__main__":
    child.run(_work)
