"""Starts the parts of the service, restarts those that die, and stops them in order.

    etcd ── the network is stored ──┬── network (emulated switches, or the lab)
                                    └── API processes, with the dispatcher inside
    Ray and the workers on it (started first, since it takes longest)

All of this runs on one event loop, in a thread that lives as long as the service: the kernel ends
the child processes with that thread.
"""

import asyncio
import logging
import math
import os
import shutil
import socket as sockets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pydantic import SecretStr

from api.start import logs
from api.start.children import (
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    ChildFailed,
    ChildProcess,
    keep_running,
)
from api.start.data_folder import DataFolder, find_open_parent
from api.start.first_network import load_or_store_network
from api.start.listening import bind
from api.start.log_trimming import keep_trimmed
from api.start.parts import common
from api.start.ready_wait import START_SECONDS, ReadyWait
from api.start.roles import ROLES, Only
from api.start.settings.checks import check_settings, find_hints
from api.start.settings.cluster_token import find_cluster_token
from api.start.settings.description import describe
from api.start.settings.settings import Part, Settings
from api.start.workers.ray_environment import environment, folder_of
from api.start.workers.wanted import find_other_counts, forget_uncounted, load_or_store_counts
from configurators.store.etcd.client import Etcd
from configurators.store.etcd.errors import StoreError, StoreUnavailable
from configurators.store.model import NetworkDoc
from configurators.store.server.server import EtcdServer
from dzflow.aio import BackgroundTasks
from dzflow.process.child_environment import child_environment

_log = logging.getLogger(__name__)

_CHECK_ETCD_EVERY = 0.5
_WORKERS_PATIENCE, _NETWORK_PATIENCE = 25.0, 20.0
_DRAINED_PATIENCE = 10.0  # seconds to end, beyond the time that a process has to drain


class Supervisor:
    """The parts of one service."""

    def __init__(
        self,
        settings: Settings,
        only: Only | None,
        tell: Callable[[str], None],
        on_locked: Callable[[], None],
    ) -> None:
        """`on_locked` is called once this service has locked the data folder."""
        check_settings(settings, only)
        if only == "dashboard":
            operators = settings.tokens.model_copy(update={"hosts": {}})
            settings = settings.model_copy(update={"tokens": operators})
        self.settings = settings
        self.hints = find_hints(settings)
        self.network: NetworkDoc | None = None
        self.etcd: EtcdServer | None = None
        self.lab: str | None = None
        self._only = only
        self._role = ROLES[only]
        self._tell = tell
        self._on_locked = on_locked
        self._folder = DataFolder(settings.data_dir)
        self._locked = False
        self._sockets: list[list[sockets.socket]] = []  # of each API process
        self._children: list[ChildProcess] = []  # in the order of their start
        self._keepers = BackgroundTasks()
        self._node = sockets.gethostname()
        self._stopping = False

    @property
    def url(self) -> str:
        """The address of the API."""
        scheme = "https" if self.settings.tls.cert else "http"
        host = self.settings.listen
        if host in ("0.0.0.0", "::"):  # noqa: S104 - only asked, not listened at
            host = "127.0.0.1"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.settings.port}"

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        found = {child.name: child.pid for child in self._children if child.pid is not None}
        if self.etcd is not None and self.etcd.pid is not None:
            found["etcd"] = self.etcd.pid
        return found

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything; the service is ready on return. Call `stop` even if this fails."""
        self._folder.__enter__()
        self._locked = True
        self._on_locked()
        if (parent := find_open_parent(self._folder.path)) is not None:
            self.hints.append(f"everybody can replace folders in {parent}; `chmod o-w` it")
        for hint in self.hints:
            _log.warning("%s", hint)
        if self._role.api:
            self._bind()
        self._complete_settings()
        if self.etcd is not None:
            self.etcd.launch()  # its folder is there before any client looks for it
        if self._role.workers:
            self._tell("joining Ray" if self.settings.ray.address else "starting Ray")
            self._start(
                "workers",
                "workers",
                "api.start.workers.process",
                _WORKERS_PATIENCE,
                environment=environment(self.settings, self._ray_token()),
                workers=self._role.workers,
                node=self._node,
            )
        if self.etcd is not None:
            self._tell("starting etcd")
            await asyncio.to_thread(self.etcd.wait)
        async with Etcd(common.access(self.settings)) as etcd:
            self.network = await self._load_network(etcd)
            if self._role.workers in ("own", "detached"):
                await self._store_counts(etcd)
            elif self._role.southbound:
                await forget_uncounted(etcd, self.settings)
        self._update(plan=self.network.pipeline.plan, trees=self.network.tree_count)
        if self._role.southbound:
            module = "api.start.southbound_process"
            self._start("southbound", "southbound", module, self._drained(), node=self._node)
        if self._role.network and self.settings.data_plane in ("emulated", "ovs"):
            relay = self.settings.port if self._only is None else 0
            self._start(
                "network",
                "network",
                "api.start.network_process",
                _NETWORK_PATIENCE,
                relay=relay,
                alone=self._only == "network",
            )
        # Made here, because API processes do not get all secrets.
        configured = msgspec.to_builtins(describe(self.settings))
        for number, those in enumerate(self._sockets, 1):
            files = [socket.fileno() for socket in those]
            self._start(
                f"api-{number}",
                "api",
                "api.start.api_server",
                self._drained(),
                files=files,
                sockets=files,
                node=self._node,
                configured=configured,
            )
        await self._get_ready()
        self._watch()

    async def _load_network(self, etcd: Etcd) -> NetworkDoc:
        """The network; a part that is started alone waits for an etcd that is started later."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (START_SECONDS if self._only else 0.0)
        while True:
            try:
                return await load_or_store_network(etcd, self.settings)
            except StoreUnavailable as error:
                if loop.time() > until:
                    raise
                self._tell(f"waiting for etcd: {error}")
                await asyncio.sleep(_CHECK_ETCD_EVERY)

    def _bind(self) -> None:
        """Bind the sockets of all API processes: the shared port, and those of their own."""
        settings = self.settings
        shared = bind(settings.listen, settings.port, settings.dispatchers)
        self._sockets = [[socket] for socket in shared]
        for those, port in zip(self._sockets, settings.http.process_ports, strict=False):
            those += bind(settings.listen, port, 1, "http.process_ports")

    def _complete_settings(self) -> None:
        settings = self.settings
        if settings.stream_token is None:
            self._update(stream_token=SecretStr(self._folder.secret("stream-token")))
        if self._sockets:
            self._update(port=self._sockets[0][0].getsockname()[1])
        self._update(data_dir=settings.data_dir.absolute())
        if not settings.etcd.endpoints:
            quota = settings.etcd.quota or common.OWN_QUOTA
            # The dispatcher compacts; etcd does so itself only if no dispatcher runs.
            history = max(120, math.ceil(2 * settings.etcd.history))
            self.etcd = EtcdServer(
                settings.data_dir.absolute() / "etcd", quota=quota, retention=f"{history}s"
            )
            known = {"endpoints": (self.etcd.endpoint,), "quota": quota}
            own = settings.etcd.model_copy(update=known)
            self._update(etcd=own)

    def _ray_token(self) -> Path | None:
        """The file with the token of Ray: of our own, or of the cluster that is joined."""
        if self.settings.ray.address is None:
            self._folder.secret("ray-token")
            return self._folder.path / "ray-token"
        found = find_cluster_token(self.settings, os.environ)
        # A file, because the workers' environment would show it.
        return self._folder.keep("ray-cluster-token", found) if isinstance(found, str) else found

    def _update(self, **changes: Any) -> None:
        self.settings = self.settings.model_copy(update=changes)

    async def _store_counts(self, etcd: Etcd) -> None:
        """Store how many workers are wanted, for the process that starts them waits for that."""
        counts = await load_or_store_counts(etcd, self.settings)
        for hint in find_other_counts(self.settings, counts):
            _log.warning("%s", hint)
            self.hints.append(hint)
        self._update(**{str(kind): count for kind, count in counts.items()})

    def _start(
        self,
        name: str,
        part: Part,
        module: str,
        patience: float,
        files: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> None:
        if environment is None:
            environment = child_environment(self.settings.pass_variables)
        orders = {"name": name, "settings": self.settings.for_part(part).revealed(), "rest": rest}
        output = logs.log_folder(self.settings) / f"{name}.out"
        child = ChildProcess(
            name,
            module,
            orders,
            output,
            files=files,
            environment=environment,
            patience=patience,
            on_report=self._show_report,
            to_stderr=self.settings.log.to == "stderr",
        )
        child.start()
        self._children.append(child)

    def _drained(self) -> float:
        """Within how many seconds a process has drained and ended."""
        times = self.settings.times
        return times.drain_delay + times.drain + _DRAINED_PATIENCE

    def _show_report(self, report: dict[str, Any]) -> None:
        if "event" in report:
            self._announce(report["event"])

    async def _get_ready(self) -> None:
        """Wait until all children are ready, and then until `/readyz` says so."""
        words = {
            "workers": "starting the workers",
            "network": "starting the switches",
            "southbound": "starting the southbound process",
        }
        for child in sorted(self._children, key=lambda child: child.name == "workers"):
            self._tell(words.get(child.name, "starting the API"))
            await self._await_child(child)
            self.lab = child.ready_report.get("lab", self.lab)
        if not self._sockets:
            return
        self._tell("waiting until everything is connected")
        own = self._only is None and self.settings.data_plane in ("emulated", "ovs")
        token = next((each.get_secret_value() for each in self.settings.tokens.operator), None)
        wait = ReadyWait(
            self.url,
            self._children,
            self._tell,
            own_switches=own,
            alone=self._only is not None,
            token=token,
        )
        impaired = await wait.wait()
        if impaired:
            self.hints.append(f"requests may have to wait: {impaired}")

    async def _await_child(self, child: ChildProcess) -> None:
        """Wait until a child is ready; one that ends without a reason is started a second time.

        Ray gives itself 30 s to start, which may be too short on a busy machine.
        """
        try:
            await child.await_ready(START_SECONDS)
        except ChildFailed as failed:
            if child.explained or not child.exited.is_set():
                raise
            _log.warning("%s; it is started once more", failed)
            self._tell(f"starting {child.name} once more")
            child.start()
            await child.await_ready(START_SECONDS)

    # -- while it runs ---------------------------------------------------------------------------

    def _watch(self) -> None:
        for child in self._children:
            unregister = self._unregister if child.name.startswith("api-") else None
            keeping = keep_running(child, self._announce, unregister)
            self._keepers.spawn(keeping, f"keep {child.name} running")
        if self.etcd is not None:
            self._keepers.spawn(self._keep_etcd(self.etcd), "keep etcd running")
        log = self.settings.log
        self._keepers.spawn(keep_trimmed(self._outputs, log.size, log.files), "trim logs")

    def _outputs(self) -> list[Path]:
        """The files that other programs write to."""
        found = list(logs.log_folder(self.settings).glob("*.out"))
        return [*found, self.etcd.log] if self.etcd else found

    async def _unregister(self, key: str) -> None:
        """Delete the key of an API process that has died.

        The others then take its requests over at once, and not only when its lease is over.
        """
        async with Etcd(common.access(self.settings)) as etcd:
            await etcd.delete(key)

    async def _keep_etcd(self, server: EtcdServer) -> None:
        pause = SHORTEST_PAUSE
        while True:
            await asyncio.sleep(_CHECK_ETCD_EVERY)
            if server.pid is not None:
                continue
            self._announce("etcd has died and is restarted")
            try:
                await asyncio.to_thread(server.start)
                pause = SHORTEST_PAUSE
            except StoreError as error:
                self._announce(str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _announce(self, text: str) -> None:
        if not self._stopping:
            _log.warning("%s", text)
            self._tell(text)

    # -- end -------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop everything, in the reverse order of the start."""
        self._stopping = True
        await self._keepers.cancel()
        by_name = {child.name: child for child in self._children}
        workers, network = by_name.pop("workers", None), by_name.pop("network", None)
        self._tell(f"stopping the {'API' if self._role.api else 'process'}")
        await asyncio.gather(*(child.stop() for child in by_name.values()))
        if workers is not None and not workers.ready.is_set():
            workers.kill()  # Ray ignores requests to stop while it starts, and has no state yet
        for child in (workers, network):
            if child is not None:
                self._tell(f"stopping the {child.name}")
                await child.stop()
        if workers is not None and self.settings.ray.address is None:
            # Ray removes it itself, unless it was killed.
            shutil.rmtree(folder_of(self.settings.data_dir), ignore_errors=True)
        if self.etcd is not None:
            self._tell("stopping etcd")
            await asyncio.to_thread(self.etcd.stop)
        for those in self._sockets:
            for socket in those:
                socket.close()
        if self._locked:
            self._folder.__exit__(None, None, None)

    def force(self) -> None:
        """Kill all children that still run, so that `stop` does not wait for them."""
        for child in self._children:
            child.kill()
