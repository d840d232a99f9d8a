"""The whole control plane in one process, for tests: everything but Ray.

Use it for tests that send requests, over REST or by the SDK: it starts within a second. etcd is a
real one, of the caller. Southbound processes, configurators, emulated switches and the REST service
run on one event loop in a thread. Tests of real processes use `tests/service.py`.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from api.http.app import make_app
from api.http.app_settings import ApiSettings, Token
from api.http.border.server import Server
from api.http.context import Backend
from api.start.network_process import emulate
from api.start.settings.description import describe
from api.start.settings.sections.callers import TokenSettings
from api.start.settings.settings import Settings
from configurators.environment import Environment
from configurators.ownership.ownership import Mode
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.state.learned_hosts import HostMode
from configurators.state.network import first_network, undiscovered_network
from configurators.store import keys
from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd
from configurators.tracing import Tracer
from dispatcher.changes.damping import Patience
from dispatcher.dispatcher import Dispatcher
from dispatcher.options import DispatcherOptions
from dispatcher.views import Part
from monitor.balancing.balancer import BalancerOptions
from monitor.jobs.scheduler import JobOptions
from monitor.monitor import Monitor
from monitor.moves.decision import MoveLimits
from sdn.emulator import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.tables.pipeline import OtherTraffic, PlanName
from tests.support import until

T = TypeVar("T")

PATIENT_MOVES = MoveLimits(hand_over=30.0)  # a move does not fail because the machine is busy
STILL = BalancerOptions(period=1e6)  # nothing moves by itself

TOKEN = b"a token that the processes of a test share"
HIDDEN = "a value of the settings that nobody may see"
_TOKENS = {"operator": [HIDDEN], "hosts": {"h1": f"{HIDDEN} either"}}
CONFIGURED = describe(Settings(port=0, tokens=TokenSettings.model_validate(_TOKENS)))
_TIMEOUT = 60.0


class StackOptions(Struct, frozen=True):
    """The parts of a stack.

    With an address `openflow`, switches of others connect there, and the network is discovered, or
    compared with `topology` if it is `described`; otherwise the stack has emulated switches.
    """

    topology: str = "line:3"
    openflow: str = ""
    described: bool = False
    other_traffic: OtherTraffic = "leave"
    hosts: HostMode = "declared"
    mode: Mode = "sna"
    plan: PlanName = "legs"
    trees: int = 1
    configurators: int = 1
    southbound: int = 1
    partitions: int = 3
    grace: float = 0.1  # for an old index version or tree after a change
    patience: Patience = Patience()
    api: ApiSettings = ApiSettings(keep_alive=0.5, default_wait=50.0)
    moves: MoveLimits = PATIENT_MOVES
    jobs: JobOptions | None = None
    tracer: Tracer | None = None  # of all processes
    more: dict[str, Any] = {}  # options of the dispatcher


class Stack:
    """A control plane that runs while the context lasts.

    `url` needs no token; `guarded_url` needs one of `tokens`: of the operator, of h1 or of h2.
    """

    def __init__(self, access: Access, options: StackOptions | None = None) -> None:
        self.access = access
        self.options = options or StackOptions()
        self.tokens = {"operator": "op-secret", "h1": "h1-secret", "h2": "h2-secret"}
        self.url = ""
        self.guarded_url = ""
        self.dispatcher: Dispatcher
        self.monitor: Monitor
        self.network: EmulatedNetwork
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="stack", daemon=True)

    def __enter__(self) -> "Stack":
        self._thread.start()
        self._ready.result(_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_TIMEOUT)
        assert not self._thread.is_alive(), "the stack does not stop"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the stack, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT)

    @contextmanager
    def serving(
        self, more_parts: Sequence[Part] = (), port: int = 0, /, **changes: Any
    ) -> Iterator[str]:
        """Another REST service on the same dispatcher, with other settings: its URL."""
        settings = replace(self.options.api, **changes)
        serving = _Serving(self._backend, settings, more_parts, self.options.tracer, port)
        try:
            yield self.run(serving.start())
        finally:
            self.run(serving.stop())

    @property
    def _backend(self) -> Backend:
        return Backend(self.dispatcher, self.monitor)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        options = self.options
        around = Environment(tracer=options.tracer)
        async with Etcd(self.access) as etcd, asyncio.TaskGroup() as group:
            if options.openflow and not options.described:
                doc = undiscovered_network(options.plan, options.trees)
            else:
                doc = first_network(topology(options.topology), options.plan, options.trees)
            pipeline = replace(doc.pipeline, other_traffic=options.other_traffic)
            await etcd.put(keys.NETWORK, encode(replace(doc, pipeline=pipeline)))
            for i in range(options.southbound):
                southbound = SouthboundProcess(
                    self.access,
                    TOKEN,
                    f"southbound-{i}",
                    "127.0.0.1:0",
                    options.openflow or "127.0.0.1:0",
                    options=SouthboundOptions(
                        discover=bool(options.openflow) or options.hosts != "declared",
                        learn_hosts=options.hosts != "declared",
                    ),
                    environment=around,
                )
                group.create_task(southbound.run(self._stop))
            for i in range(options.configurators):
                how = ConfiguratorOptions(tune_gc=False, load_every_s=0.1, mode=options.mode)
                configurator = ConfiguratorProcess(
                    self.access, TOKEN, f"configurator-{i}", options=how, environment=around
                )
                group.create_task(configurator.run(self._stop))
            if not options.openflow:
                there = asyncio.Event()

                def connected(network: EmulatedNetwork) -> None:
                    self.network = network
                    there.set()

                group.create_task(emulate(etcd, Settings(), self._stop, connected))
                await there.wait()
            dispatching = DispatcherOptions(
                mode=options.mode,
                plan=options.plan,
                partitions=options.partitions,
                grace=options.grace,
                patience=options.patience,
                hosts=options.hosts,
                # On a busy machine, filters may take longer than hosts are allowed.
                **{"work": None, "work_per_host": None} | options.more,
            )
            async with (
                Dispatcher(self.access, TOKEN, dispatching) as self.dispatcher,
                Monitor(
                    self.dispatcher, options=STILL, limits=options.moves, jobs=options.jobs
                ) as self.monitor,
            ):
                await self._serve()

    def _is_ready(self) -> bool:
        health = self.dispatcher.health()
        known = len(self.dispatcher.status.configurators())
        whole = not health.impaired or self.options.described  # whose switches come later
        return health.ready and whole and known >= self.options.configurators

    async def _serve(self) -> None:
        await until(self._is_ready, _TIMEOUT)
        guarded = replace(
            self.options.api,
            tokens=(
                Token(self.tokens["operator"], "operator"),
                Token(self.tokens["h1"], "host", "h1"),
                Token(self.tokens["h2"], "host", "h2"),
            ),
        )
        tracer = self.options.tracer
        services = [_Serving(self._backend, how, (), tracer) for how in (self.options.api, guarded)]
        self.url, self.guarded_url = [await serving.start() for serving in services]
        self._ready.set_result(None)
        await self._stop.wait()
        for serving in services:
            await serving.stop()


class _Serving:
    """One REST service."""

    def __init__(
        self,
        backend: Backend,
        settings: ApiSettings,
        more_parts: Sequence[Part],
        tracer: Tracer | None,
        port: int = 0,
    ) -> None:
        async def parts() -> list[Part]:
            return list(more_parts)

        self._app = make_app(settings, lambda: nullcontext(backend), parts, tracer, CONFIGURED)
        self._server = Server(self._app, settings)
        self._app.state.context.metrics.watch_connections(self._server.table)
        self._socket = socket.create_server(("127.0.0.1", port))

    async def start(self) -> str:
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        await until(lambda: self._server.started, _TIMEOUT)
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def stop(self) -> None:
        self._app.state.context.streams.stop()
        self._server.should_exit = True
        await self._task
        self._socket.close()
