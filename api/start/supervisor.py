"""Starts the parts of the service, watches over them, and ends them in order.

    etcd ── the network is stored ──┬── network (emulated switches, or the lab)
                                    └── API processes, with the dispatcher inside
    Ray and the workers on it (begins at once, for it takes longest)

All this happens in one event loop, in a thread that lives as long as the service: the kernel ends
the child processes with it.
"""

import asyncio
import logging
import shutil
import socket as sockets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal

import httpx
from pydantic import SecretStr

from api.start import logs, parts
from api.start.children import LONGEST_PAUSE, SHORTEST_PAUSE, ChildFailed, ChildProcess, keep
from api.start.data_folder import DataFolder
from api.start.first_network import settle_network
from api.start.listening import bind
from api.start.ray_environment import environment, folder_of
from api.start.settings import BadSettings, Settings, is_loopback
from configurators.store.etcd.client import Etcd
from configurators.store.etcd.errors import StoreError
from configurators.store.model import NetworkDoc
from configurators.store.server.server import EtcdServer, free_ports
from dzflow.errors import DzflowError
from sdn.lab import missing_prerequisites
from sdn.topologies import topology

_log = logging.getLogger(__name__)

Only = Literal["workers", "api"]
START_SECONDS = 120.0
OPENFLOW_PORT = 6653
_ETCD_LOOK = 0.5
_READY_LOOK = 0.1
_WHOLE_SECONDS = 60.0  # for own switches to connect, and to be brought up to date
_API_PATIENCE, _WORKERS_PATIENCE, _NETWORK_PATIENCE = 12.0, 25.0, 20.0


class StartFailed(DzflowError):
    """The service did not get ready."""


class Supervisor:
    """The parts of one service."""

    def __init__(
        self,
        settings: Settings,
        only: Only | None,
        tell: Callable[[str], None],
        held: Callable[[], None],
    ) -> None:
        """`held` is called once the data folder is ours."""
        _check(settings, only)
        self.settings = settings
        self.hints = _hints(settings)
        self.network: NetworkDoc | None = None
        self.etcd: EtcdServer | None = None
        self.lab: str | None = None
        self._only = only
        self._tell = tell
        self._on_held = held
        self._folder = DataFolder(settings.data_dir)
        self._held = False
        self._sockets: list[sockets.socket] = []
        self._children: list[ChildProcess] = []  # in the order of their start
        self._keepers: list[asyncio.Task[None]] = []
        self._node = sockets.gethostname()
        self._stopping = False

    @property
    def url(self) -> str:
        """Where the API is."""
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
        """Start everything; the service is ready on return. Call `stop` in any case."""
        self._folder.__enter__()
        self._held = True
        self._on_held()
        for hint in self.hints:
            _log.warning("%s", hint)
        if self._only != "workers":
            self._sockets = bind(
                self.settings.listen, self.settings.port, self.settings.dispatchers
            )
        self._complete_settings()
        openflow = self._openflow()
        if self._only != "api":
            self._tell("starting Ray")
            token = self._folder.path / "ray-token"
            self._folder.secret(token.name)
            self._start(
                "workers",
                "api.start.ray_cluster",
                _WORKERS_PATIENCE,
                environment=environment(self.settings, token),
                openflow=openflow,
            )
        if self.etcd is not None:
            self._tell("starting etcd")
            self.etcd.launch()
            await asyncio.to_thread(self.etcd.wait)
        async with Etcd(parts.access(self.settings)) as etcd:
            self.network = await settle_network(etcd, self.settings)
        self._update(plan=self.network.pipeline.plan, trees=self.network.tree_count)
        if self._only != "api" and self.settings.data_plane in ("emulated", "ovs"):
            relay = self.settings.port if self._only is None else 0
            self._start(
                "network",
                "api.start.network_process",
                _NETWORK_PATIENCE,
                openflow=openflow,
                relay=relay,
            )
        for number, socket in enumerate(self._sockets, 1):
            self._start(
                f"api-{number}",
                "api.http.server",
                _API_PATIENCE,
                files=[socket.fileno()],
                socket=socket.fileno(),
                node=self._node,
            )
        await self._get_ready()
        self._watch()

    def _complete_settings(self) -> None:
        settings = self.settings
        if settings.stream_token is None:
            self._update(stream_token=SecretStr(self._folder.secret("stream-token")))
        if self._sockets:
            self._update(port=self._sockets[0].getsockname()[1])
        self._update(data_dir=settings.data_dir.absolute())
        if not settings.etcd.endpoints:
            # Chosen once: all children are told, and etcd has to come back at the same place.
            client, peer = free_ports(2)
            folder = settings.data_dir.absolute() / "etcd"
            self.etcd = EtcdServer(folder, ports=(client, peer))
            own = settings.etcd.model_copy(update={"endpoints": (self.etcd.endpoint,)})
            self._update(etcd=own)

    def _update(self, **changes: Any) -> None:
        self.settings = self.settings.model_copy(update=changes)

    def _openflow(self) -> list[str]:
        """Where each southbound worker listens for switches; empty: at any port of its node."""
        settings = self.settings
        given, count, host = settings.openflow.ports, settings.southbound, settings.openflow.host
        if given:
            return [f"{host}:{port}" for port in given]
        if settings.data_plane == "external":
            return [f"{host}:{OPENFLOW_PORT + n}" for n in range(count)]
        if settings.data_plane == "ovs":
            # Real switches are told once where to connect; a worker that is started anew must
            # be found at the same place.
            return [f"127.0.0.1:{port}" for port in free_ports(count)]
        return [""] * count

    def _start(
        self,
        name: str,
        module: str,
        patience: float,
        files: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> None:
        orders = {"name": name, "settings": self.settings.revealed(), "rest": rest}
        output = logs.log_folder(self.settings) / f"{name}.out"
        child = ChildProcess(
            name,
            module,
            orders,
            output,
            files=files,
            environment=environment,
            patience=patience,
            heard=self._heard,
        )
        child.start()
        self._children.append(child)

    def _heard(self, said: dict[str, Any]) -> None:
        if "said" in said:
            self._say(said["said"])

    async def _get_ready(self) -> None:
        """Wait until all children are, and until the service says so itself."""
        words = {"workers": "starting the workers", "network": "starting the switches"}
        for child in sorted(self._children, key=lambda child: child.name == "workers"):
            self._tell(words.get(child.name, "starting the API"))
            await self._await_child(child)
            self.lab = child.said.get("lab", self.lab)
        if self._sockets:
            self._tell("waiting until everything is connected")
            await self._await_readyz()

    async def _await_child(self, child: ChildProcess) -> None:
        """Wait until a child is ready; what ends without saying why gets a second chance.

        Ray gives itself 30 s to start, which on a busy machine may not do.
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

    async def _await_readyz(self) -> None:
        answer = "no answer"
        whole_until: float | None = None
        gone = {child: asyncio.create_task(child.exited.wait()) for child in self._children}
        try:
            async with (
                httpx.AsyncClient(base_url=self.url, verify=False, trust_env=False) as client,  # noqa: S501 - ourselves
                asyncio.timeout(START_SECONDS),
            ):
                while True:
                    try:
                        got = await client.get("/readyz")
                        answer = got.text[:1000]
                        if got.status_code == 200:
                            now = asyncio.get_running_loop().time()
                            whole_until = whole_until or now + _WHOLE_SECONDS
                            missing = self._missing(got.json())
                            if not missing:
                                return
                            if now > whole_until:
                                self.hints.append(f"requests may have to wait: {missing}")
                                return
                            self._tell(missing)
                        elif got.status_code != 503:
                            raise StartFailed(f"/readyz answers {got.status_code}: {answer}")
                    except httpx.TransportError as error:
                        answer = str(error) or type(error).__name__
                    for child, task in gone.items():
                        if task.done():
                            raise StartFailed(f"{child.name}: {child.last_words()}")
                    await asyncio.sleep(_READY_LOOK)
        except TimeoutError:
            raise StartFailed(
                f"not ready within {START_SECONDS:.0f} s: {answer}; the logs in"
                f" {logs.log_folder(self.settings)} may tell more"
            ) from None
        finally:
            for task in gone.values():
                task.cancel()

    def _missing(self, told: dict[str, Any]) -> str:
        """The impairments that should end soon after a start, according to `/readyz`."""
        found = [
            f"{each['id']}: {each['reason']}"
            for each in told["impaired"]
            if each["kind"] == "process"
        ]
        # Switches that the service does not start itself may come at any time.
        if self._only is None and self.settings.data_plane in ("emulated", "ovs"):
            counts = (
                (told["switches_up"], told["switches"], "switches are up"),
                (told["partitions_ready"], told["partitions"], "partitions are ready"),
            )
            found += [f"{now} of {all_} {what}" for now, all_, what in counts if now < all_]
        return ", ".join(found)

    # -- while it runs ---------------------------------------------------------------------------

    def _watch(self) -> None:
        work: list[Coroutine[Any, Any, None]] = [
            keep(each, self._say, self._bury if each.name.startswith("api-") else None)
            for each in self._children
        ]
        if self.etcd is not None:
            work.append(self._keep_etcd(self.etcd))
        self._keepers = [asyncio.create_task(each) for each in work]

    async def _bury(self, key: str) -> None:
        """An API process has died: others go on with its requests at once, and not only when its
        lease is over."""
        async with Etcd(parts.access(self.settings)) as etcd:
            await etcd.delete(key)

    async def _keep_etcd(self, server: EtcdServer) -> None:
        pause = SHORTEST_PAUSE
        while True:
            await asyncio.sleep(_ETCD_LOOK)
            if server.pid is not None:
                continue
            self._say("etcd has died and is started anew")
            try:
                await asyncio.to_thread(server.start)
                pause = SHORTEST_PAUSE
            except StoreError as error:
                self._say(str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _say(self, text: str) -> None:
        if not self._stopping:
            _log.warning("%s", text)
            self._tell(text)

    # -- end -------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End everything, from the last to the first."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        by_name = {child.name: child for child in self._children}
        workers, network = by_name.pop("workers", None), by_name.pop("network", None)
        self._tell("stopping the API")
        await asyncio.gather(*(child.stop() for child in by_name.values()))
        if workers is not None and not workers.ready.is_set():
            workers.kill()  # Ray hears nothing while it starts, and has nothing to lose yet
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
        for socket in self._sockets:
            socket.close()
        if self._held:
            self._folder.__exit__(None, None, None)

    def force(self) -> None:
        """Kill everything that still runs; `stop` then has nothing to wait for."""
        for child in self._children:
            child.kill()


def _check(settings: Settings, only: Only | None) -> None:
    """What cannot work is said before anything is started."""
    if "topology" in settings.model_fields_set:
        topology(settings.topology)
    if only is not None and not settings.etcd.endpoints:
        raise BadSettings("etcd.endpoints: parts that are started apart meet in etcd; name it")
    if only is not None and settings.stream_token is None:
        raise BadSettings("stream_token: parts that are started apart must share one; set it")
    if settings.data_plane == "ovs":
        missing = missing_prerequisites()
        if missing:
            raise BadSettings(f"data_plane: there is no Open vSwitch lab here: {missing[0]}")
        if settings.ray.address:
            raise BadSettings("data_plane: the lab's switches connect on loopback; use an own Ray")


def _hints(settings: Settings) -> list[str]:
    """What works, but perhaps not as it is meant."""
    found = []
    if settings.data_plane == "external" and is_loopback(settings.openflow.host):
        found.append("switches on other machines need openflow.host, which is loopback now")
    if settings.tokens.given and not is_loopback(settings.listen) and not settings.tls.cert:
        found.append("tokens travel unencrypted; set tls.cert and tls.key")
    return found
