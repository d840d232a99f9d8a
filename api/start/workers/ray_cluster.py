"""Places the workers on the nodes of a Ray as actors.

The nodes are assigned round-robin in a fixed order, and are binding. If the node of an actor is
gone, the actor is started on another node. On a cluster that is joined, actors reserve CPUs: one
whose node has no room is placed on any other node, and waits until Ray has one.

As with `ray_connection`, import this module only in a process whose environment is for Ray.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import ray
from msgspec import Struct
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from api.start.actors.configurator import Configurator
from api.start.actors.southbound import Southbound
from api.start.parts.southbound import openflow_address
from api.start.settings.settings import Settings
from api.start.workers.actor_card import ActorCard
from api.start.workers.ray_connection import Node, RayConnection, short
from api.start.workers.ray_environment import NoRay, RayLost
from api.start.workers.wanted import KINDS, Counts, Worker

_log = logging.getLogger(__name__)

_START_SECONDS = 120.0
_ROOM_SECONDS = 30.0  # after which an actor that has not started is placed in another way
_LOOK_EVERY = 0.1
_STOP_SECONDS = 8.0
_NOTICE_SECONDS = 1.0  # for the answer of an actor that may have started

_CLASSES = {"configurators": Configurator, "southbound": Southbound}


class Job(Struct):
    """A worker that should run, and its actor."""

    worker: Worker
    openflow: str = ""  # where it accepts switches; empty: at any port
    cpus: float = 0.0  # that its actor reserves
    node: Node | None = None  # that it is bound to, or that it runs on
    bound: bool = False
    actor: Any = None
    ping: Any = None
    ending: Any = None
    runs: bool = False  # its actor has started once
    since: float = 0.0  # when the actor was made

    @property
    def id(self) -> str:
        """The name of the worker."""
        return self.worker.id


def choose(nodes: Sequence[Node], number: int) -> Node:
    """The node of a worker: workers of one kind are assigned round-robin, by address."""
    return sorted(nodes, key=lambda node: (node.address, node.id))[(number - 1) % len(nodes)]


def choose_with_room(
    nodes: Sequence[Node], number: int, cpus: float, used: dict[str, float]
) -> Node | None:
    """The same among the nodes with room, if the one by turn has none; None if no node has any.

    `used` are the CPUs that our workers reserve, by node.
    """
    room = [node for node in nodes if node.cpus - used.get(node.id, 0.0) >= cpus]
    first = choose(nodes, number)
    if first in room:
        return first
    return choose(room, number) if room else None


class Cluster:
    """A Ray that was started or joined, with the workers on it; for one process, once.

    With a `card`, actors are detached: Ray keeps them when this process ends. They show the card.
    """

    def __init__(
        self,
        settings: Settings,
        card: ActorCard | None = None,
        connection: RayConnection | None = None,
    ) -> None:
        self.jobs: dict[Worker, Job] = {}
        self.connection = connection or RayConnection(settings)
        self._settings = settings
        self._card = card

    def start(self) -> None:
        """Start or join Ray."""
        self.connection.start()

    def stop(self) -> None:
        """End the workers in order, configurators first, then Ray if it is ours."""
        self.end_all()
        self.connection.stop()

    def end_all(self) -> None:
        """End all workers in order, configurators first."""
        self._notice_starts()
        for kind in reversed(KINDS):
            ends = {
                job.actor.stop.remote(): job.id
                for job in self.jobs.values()
                if job.worker.kind == kind and job.runs
            }
            if not ends:
                continue
            # One that fails is no reason to kill the others before they have ended.
            _, late = ray.wait(list(ends), num_returns=len(ends), timeout=_STOP_SECONDS)
            for end, id in ends.items():
                try:
                    in_order = end not in late and ray.get(end, timeout=0)
                except RayError as error:
                    _log.warning("%s did not end in order: %s", id, short(error))
                else:
                    if not in_order:
                        _log.warning("%s did not end within %g s", id, _STOP_SECONDS)
        for job in self.jobs.values():
            kill(job)
        self.jobs.clear()

    # -- workers ---------------------------------------------------------------------------------

    @property
    def workers(self) -> list[Worker]:
        """The workers that were started, and have not ended."""
        return list(self.jobs)

    def start_workers(self, counts: Counts) -> None:
        """Start the first workers; on return they run, except those that wait for resources.

        NoRay if one of them does not start.
        """
        for kind, count in counts.items():
            for number in range(1, count + 1):
                self.start_worker(Worker(kind, number))
        deadline = time.monotonic() + _START_SECONDS
        while missing := self._missing():
            if time.monotonic() > deadline:
                raise NoRay(f"{', '.join(missing)} does not start; see the logs")
            time.sleep(_LOOK_EVERY)
            self.check()

    def adopt(self, worker: Worker, actor: Any, cpus: float) -> None:
        """Go on with an actor that is there."""
        job = Job(worker, cpus=cpus, actor=actor)
        job.ping, job.since = actor.ping.remote(), time.monotonic()
        self.jobs[worker] = job

    def start_worker(self, worker: Worker) -> None:
        """Start a worker, without waiting for it; NoRay if that is not possible now."""
        settings = self._settings
        job = Job(worker)
        if worker.kind == "southbound":
            job.openflow = openflow_address(settings, worker.number)
            job.cpus = settings.ray.southbound_cpus
        else:
            job.cpus = settings.ray.configurator_cpus
        if self.connection.own:
            job.cpus = 0.0  # nothing else runs there
        self._create(job)
        self.jobs[worker] = job

    def end_worker(self, worker: Worker) -> bool:
        """Ask a worker to end in order; whether it has ended, and is forgotten."""
        job = self.jobs[worker]
        if job.runs and job.ending is None:
            job.ending = job.actor.stop.remote()
        if job.runs and not self.has_ended(job):
            return False
        kill(job)
        del self.jobs[worker]
        return True

    def check(self) -> list[str]:
        """Start workers on another node whose node is gone; gives what was done, as texts.

        Ray itself restarts a worker whose process has died, on its node. NoRay if a worker cannot
        be started now, RayLost if that will never be possible.
        """
        done = []
        nodes = {node.id: node for node in self.connection.nodes()}
        if self.connection.own and not nodes:
            raise RayLost("the only node of the service's own Ray is gone; Ray is restarted")
        for job in self.jobs.values():
            node = job.node
            if job.ending is not None:
                continue
            # Ray itself starts a detached actor on another node.
            gone = node and node.id not in nodes and self._card is None
            if job.actor is None or gone or self._is_lost(job, nodes):
                self.create_again(job, job.cpus)
                at = job.node.address if job.node else "any node with room"
                before = node.address if node else "nowhere"
                done.append(f"{job.id} was at {before} and is started at {at}")
            elif not job.runs and job.cpus and time.monotonic() > job.since + _ROOM_SECONDS:
                done += self._place_otherwise(job)
        return done

    def delays(self) -> dict[Worker, str]:
        """Why workers have not started yet."""
        late = [job for job in self.jobs.values() if not job.runs]
        now = time.monotonic()
        found = {
            job.worker: "it has not started yet; see the logs"
            for job in late
            if now > job.since + _ROOM_SECONDS
        }
        return found | self._without_room(late)

    def _missing(self) -> list[str]:
        """The workers that do not run, except those that the service can be used without."""
        late = [job for job in self.jobs.values() if not job.runs]
        running = {job.worker.kind for job in self.jobs.values() if job.runs}
        waiting = self._without_room(late)
        return [
            job.id for job in late if job.worker not in waiting or job.worker.kind not in running
        ]

    def _without_room(self, late: Sequence[Job]) -> dict[Worker, str]:
        """Those of some workers that Ray has no room for, and what to do."""
        if not any(job.cpus for job in late):
            return {}
        free = ray.available_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
        return {
            job.worker: (
                f"waiting for resources: CPUs needed: {job.cpus:g}, free in the Ray cluster:"
                f" {free:g}; add a node, or let Ray's autoscaler do so"
            )
            for job in late
            if job.cpus > free
        }

    # -- actors ----------------------------------------------------------------------------------

    def _create(self, job: Job) -> None:
        """Make the actor of a job, bound to a node if one has room."""
        nodes = self.connection.nodes()
        if not nodes:
            raise NoRay("no node of the Ray cluster is alive")
        number = job.worker.number
        if not job.cpus:
            self._create_at(job, choose(nodes, number))
            return
        used: dict[str, float] = {}
        for other in self.jobs.values():
            if other is not job and other.node and other.actor:
                used[other.node.id] = used.get(other.node.id, 0.0) + other.cpus
        self._create_at(job, choose_with_room(nodes, number, job.cpus, used))

    def _create_at(self, job: Job, node: Node | None) -> None:
        """Make the actor of a job, bound to a node, or placed by Ray where it has room."""
        job.node, job.bound, job.runs, job.ending = node, node is not None, False, None
        job.since = time.monotonic()
        host = self._settings.ray.node_host or ("127.0.0.1" if self.connection.own else "")
        rest, detached = self._rest(job), self._card is not None
        options = {
            "name": self.name_of(job.worker),
            "num_cpus": job.cpus,
            "max_restarts": -1,
            "max_concurrency": 4,
            "scheduling_strategy": (
                NodeAffinitySchedulingStrategy(node.id, soft=detached) if node else "DEFAULT"
            ),
            "lifetime": "detached" if detached else None,
        }
        made: Any = ray.remote(_CLASSES[job.worker.kind]).options(**options)
        settings = self._settings.for_part(job.worker.part).revealed()
        try:
            job.actor = made.remote(job.id, settings, host=host, **rest)
        except ValueError as error:
            if "already" not in str(error):
                raise
            raise NoRay(
                f"{job.id} runs on this Ray cluster already; stop the other `dzflow up`, or give"
                " this one another etcd.prefix"
            ) from None
        job.ping = job.actor.ping.remote()

    def _rest(self, job: Job) -> dict[str, Any]:
        """What else the actor of a job is made with."""
        rest: dict[str, Any] = {}
        if job.worker.kind == "southbound":
            rest["openflow"] = job.openflow
        if self._card is not None:
            rest["card"] = msgspec.to_builtins(self._card)
        return rest

    def name_of(self, worker: Worker) -> str:
        """The name of a worker's actor in Ray's namespace."""
        return f"{self._settings.etcd.prefix}{worker.id}"

    def create_again(self, job: Job, cpus: float) -> None:
        """Make a new actor for a job, in the place of the present one."""
        kill(job)
        job.cpus = cpus
        self._create(job)

    def _place_otherwise(self, job: Job) -> list[str]:
        """Place an actor that has found no room in another way; what was done, as texts."""
        if job.bound:  # other programs use the node
            kill(job)
            self._create_at(job, None)
        elif not any(other.runs for other in self._alike(job)):
            self.create_again(job, 0.0)
            return [f"{job.id} reserves no CPU: Ray has no room for it, and there is no other one"]
        return []

    def _alike(self, job: Job) -> list[Job]:
        """All workers of its kind."""
        return [each for each in self.jobs.values() if each.worker.kind == job.worker.kind]

    def _notice_starts(self) -> None:
        """Notice the actors that have started since the last check, or do so right now."""
        pings = {job.ping: job for job in self.jobs.values() if job.actor and not job.runs}
        if not pings:
            return
        ready, _ = ray.wait(list(pings), num_returns=len(pings), timeout=_NOTICE_SECONDS)
        for ping in ready:
            try:
                ray.get(ping, timeout=0)
            except RayError as error:
                _log.warning("%s has not started: %s", pings[ping].id, short(error))
            else:
                pings[ping].runs = True

    def _is_lost(self, job: Job, nodes: dict[str, Node]) -> bool:
        """Whether Ray has given the actor up, as it does when its node is gone."""
        ready, _ = ray.wait([job.ping], timeout=0)
        if not ready:
            return False
        try:
            at = ray.get(ready[0], timeout=0)
        except ActorUnavailableError:
            pass  # Ray is restarting it
        except RayActorError:
            _log.warning("%s is lost", job.id, exc_info=True)
            return True
        else:
            job.runs, job.node = True, nodes.get(at, job.node)
        job.ping = job.actor.ping.remote()
        return False

    def has_ended(self, job: Job) -> bool:
        """Whether a worker that was asked to end has done so; if not in time, it is asked again."""
        ready, _ = ray.wait([job.ending], timeout=0)
        if not ready:
            return False
        try:
            if ray.get(ready[0], timeout=0):
                return True
        except ActorUnavailableError:
            pass  # Ray is restarting it
        except RayActorError:
            return True
        job.ending = job.actor.stop.remote()
        return False


def kill(job: Job) -> None:
    """Kill the actor of a job, if it has one."""
    if job.actor is not None:
        ray.kill(job.actor)
        job.actor, job.runs = None, False
