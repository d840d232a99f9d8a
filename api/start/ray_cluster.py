"""Starts Ray, or joins a cluster, and places the workers on its nodes as actors.

Runs as a child process of `dzflow up`. The nodes are assigned round-robin in a fixed order, and are
binding. If the node of an actor is gone, the actor is started on another node.

Ray reads the environment when it is imported: import this module only in a process that was started
with `ray_environment.environment`.
"""

import asyncio
import logging
import os
import platform
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from msgspec import Struct
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from api.start import child, parts
from api.start.actors import Configurator, Southbound
from api.start.ray_environment import NoRay, temporary_folder
from api.start.settings.settings import Part, Settings
from configurators.store import keys
from configurators.store.etcd.client import Etcd
from configurators.store.model import Process
from configurators.store.registration import Registration

_log = logging.getLogger(__name__)

NAMESPACE = "dzflow"
OBJECT_STORE_BYTES = 80 << 20  # we store nothing in it; Ray does not allow less
_CHECK_SECONDS = 1.0
_PING_SECONDS = 5.0
_STOP_SECONDS = 8.0


class Node(Struct, frozen=True):
    """A machine of the cluster."""

    id: str
    address: str


class Job(Struct):
    """A worker that should run, and its actor."""

    kind: type[Configurator] | type[Southbound]
    number: int  # among its kind, from 0
    openflow: str = ""
    node: Node | None = None
    actor: Any = None
    ping: Any = None

    @property
    def id(self) -> str:
        """Its name, which never changes: it owns partitions under it."""
        return f"{self.kind.__name__.lower()}-{self.number + 1}"


def choose(nodes: Sequence[Node], number: int) -> Node:
    """The node of a worker: workers of one kind are assigned round-robin, by address."""
    return sorted(nodes, key=lambda node: (node.address, node.id))[number % len(nodes)]


class Cluster:
    """A Ray that was started or joined, with the workers on it; for one process, once."""

    def __init__(self, settings: Settings, openflow: Sequence[str]) -> None:
        """`openflow` has the host:port at which each southbound worker accepts switches."""
        self._settings = settings
        self._own = settings.ray.address is None
        self._folder: Path | None = None
        self.jobs = [
            *(Job(Southbound, n, openflow[n]) for n in range(settings.southbound)),
            *(Job(Configurator, n) for n in range(settings.configurators)),
        ]

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start or join Ray and start all workers; they run on return."""
        if self._own:
            self._start_own()
        else:
            self._join()
        for job in self.jobs:
            self._create(job)
        for job in self.jobs:
            self._await(job)

    def stop(self) -> None:
        """End the workers in order, configurators first, then Ray if it is ours."""
        for kind in (Configurator, Southbound):
            ends = [job.actor.stop.remote() for job in self.jobs if job.kind is kind and job.actor]
            try:
                ray.get(ends, timeout=_STOP_SECONDS)
            except RayError as error:
                _log.warning("a %s did not end in order: %s", kind.__name__, error)
        for job in self.jobs:
            if job.actor is not None:
                ray.kill(job.actor)
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def replace_lost_workers(self) -> list[str]:
        """Start workers whose node is gone on another one; gives what was done, as texts.

        Ray itself restarts a worker whose process has died, on its node.
        """
        done = []
        alive = {node.id for node in self.nodes()}
        for job in self.jobs:
            if job.node is None or job.node.id not in alive or self._is_lost(job):
                before = job.node.address if job.node else "nowhere"
                self._end(job)
                self._create(job)
                assert job.node is not None
                done.append(f"{job.id} was at {before} and is started at {job.node.address}")
        return done

    @property
    def address(self) -> str:
        """The address of Ray."""
        return str(ray.get_runtime_context().gcs_address)

    def nodes(self) -> list[Node]:
        """The machines that are alive."""
        return [
            Node(found["NodeID"], found["NodeManagerAddress"])
            for found in ray.nodes()  # type: ignore[no-untyped-call]
            if found["Alive"]
        ]

    # -- Ray -------------------------------------------------------------------------------------

    def _start_own(self) -> None:
        self._folder = temporary_folder(self._settings.data_dir)
        try:
            ray.init(
                address="local",
                namespace=NAMESPACE,
                include_dashboard=False,
                # Ray starts as many processes ahead, which our actors then use.
                num_cpus=len(self.jobs),
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                _temp_dir=str(self._folder / "r"),
                _node_ip_address="127.0.0.1",
            )
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise NoRay(f"Ray does not start: {_short(error)}") from error

    def _join(self) -> None:
        ray_settings = self._settings.ray
        try:
            ray.init(
                address=ray_settings.address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise NoRay(
                f"the Ray cluster at {ray_settings.address} cannot be joined: {_short(error)}; is"
                " this machine one of its nodes (`ray start --address=…`), with the same token?"
            ) from error

    # -- actors ----------------------------------------------------------------------------------

    def _create(self, job: Job) -> None:
        nodes = self.nodes()
        if not nodes:
            raise NoRay("no node of the Ray cluster is alive")
        job.node = choose(nodes, job.number)
        host = self._settings.ray.node_host or ("127.0.0.1" if self._own else job.node.address)
        rest = {"openflow": job.openflow or f"{host}:0"} if job.kind is Southbound else {}
        options = {
            "name": f"{self._settings.etcd.prefix}{job.id}",
            "num_cpus": 0,
            "max_restarts": -1,
            "max_concurrency": 4,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(job.node.id, soft=False),
        }
        made = ray.remote(job.kind).options(**options)
        try:
            part: Part = "southbound" if job.kind is Southbound else "configurator"
            settings = self._settings.for_part(part).revealed()
            job.actor = made.remote(job.id, settings, listen=f"{host}:0", **rest)
        except ValueError as error:
            if "already" not in str(error):
                raise
            raise NoRay(
                f"{job.id} runs on this Ray cluster already; stop the other `dzflow up`, or give"
                " this one another etcd.prefix"
            ) from None
        job.ping = job.actor.ping.remote()

    def _await(self, job: Job) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                ray.get(job.ping, timeout=_PING_SECONDS)
                return
            except (GetTimeoutError, ActorUnavailableError):
                job.ping = job.actor.ping.remote()
            except RayActorError:
                _log.warning("%s cannot be started at %s", job.id, job.node, exc_info=True)
                self._end(job)
                self._create(job)
        raise NoRay(f"{job.id} does not start; see the logs")

    def _is_lost(self, job: Job) -> bool:
        """Whether Ray has given the actor up, as it does when its node is gone."""
        ready, _ = ray.wait([job.ping], timeout=0)
        if not ready:
            return False
        try:
            ray.get(ready[0], timeout=0)
        except ActorUnavailableError:
            pass  # Ray is restarting it
        except RayActorError:
            return True
        job.ping = job.actor.ping.remote()
        return False

    def _end(self, job: Job) -> None:
        if job.actor is not None:
            ray.kill(job.actor)
            job.actor = None


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


async def _work(self: child.Child, stop: asyncio.Event) -> None:
    cluster = Cluster(self.settings, self.orders["openflow"])
    # In this thread: Ray's processes end with the thread that started them.
    cluster.start()
    async with Etcd(parts.access(self.settings)) as etcd:
        # The API reads this key to report whether Ray runs.
        process = Process("ray", cluster.address, os.getpid(), platform.node())
        registered = asyncio.create_task(Registration(etcd, keys.RAY, process).keep())
        self.report(ready=True)
        try:
            await _manage(self, cluster, stop, registered)
        finally:
            registered.cancel()
    cluster.stop()


async def _manage(
    self: child.Child, cluster: Cluster, stop: asyncio.Event, registered: asyncio.Task[None]
) -> None:
    while not stop.is_set():
        if registered.done():
            registered.result()  # another process manages the workers now
        for event in await asyncio.to_thread(cluster.replace_lost_workers):
            _log.warning("%s", event)
            self.report(event=event)
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue


if __name__ == "__main__":
    child.run(_work)
