"""Configurators as detached actors: they outlive the process that has placed them.

Any process with the same settings can go on with them. Ray restarts those that die, on another node
if theirs is gone, also while nobody supervises them.
"""

import logging
from typing import Any

import msgspec
import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from api.start.settings.settings import Settings
from api.start.workers.actor_card import ActorCard, card_of, is_same_service
from api.start.workers.ray_cluster import Cluster, Job
from api.start.workers.ray_connection import short
from api.start.workers.ray_environment import NoRay, RayLost
from api.start.workers.wanted import Worker, parse_worker

_log = logging.getLogger(__name__)

_CARD_SECONDS = 10.0  # for the actors that are there to say whose they are


class DetachedWorkers:
    """Workers on a Ray cluster that was joined; they stay when it is left.

    Actors that were made with other settings, or by another version, are replaced one by one.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._card = card_of(settings, "configurator")
        self._cluster = Cluster(settings, self._card)
        self._cards: dict[Worker, Any] = {}  # that are still to be read, of actors that were found
        self._outdated: set[Worker] = set()
        self._replaced: Job | None = None  # the one that is being replaced now

    def join(self) -> None:
        """Join the cluster; NoRay if that is not possible now."""
        self._cluster.start()

    def leave(self) -> None:
        """Leave the cluster; all workers stay."""
        self._cluster.connection.stop()

    @property
    def workers(self) -> list[Worker]:
        """The workers that were started or found, and have not ended."""
        return self._cluster.workers

    def start_worker(self, worker: Worker) -> None:
        """Start a worker; NoRay if that is not possible now."""
        self._cluster.start_worker(worker)

    def end_worker(self, worker: Worker) -> bool:
        """Ask a worker to end in order; whether it has ended."""
        return self._cluster.end_worker(worker)

    def end_all(self) -> None:
        """End all workers in order."""
        self._cluster.end_all()

    def delays(self) -> dict[Worker, str]:
        """Why workers have not started yet."""
        return self._cluster.delays()

    def adopt(self) -> list[str]:
        """Go on with the actors that are there; what was found, as texts.

        NoRay if they belong to another service.
        """
        for name in ray.util.list_named_actors():
            worker = parse_worker(name.removeprefix(self._settings.etcd.prefix))
            if worker is None or self._cluster.name_of(worker) != name:
                continue
            try:
                actor = ray.get_actor(name)
            except ValueError:
                continue  # it has just ended
            self._cluster.adopt(worker, actor, self._settings.ray.configurator_cpus)
            self._cards[worker] = actor.card.remote()
        if self._cards:
            cards = list(self._cards.values())
            ray.wait(cards, num_returns=len(cards), timeout=_CARD_SECONDS)
        self._read_cards()
        found = sorted(self._cluster.jobs, key=lambda worker: worker.number)
        return [f"{worker.id} runs already" for worker in found]

    def check(self) -> list[str]:
        """Start workers again that Ray has given up, and replace one that is outdated.

        What was done, as texts. NoRay as above, RayLost if the connection to Ray is lost.
        """
        try:
            self._read_cards()
            return self._cluster.check() + self._replace_one()
        except ConnectionError as error:
            at = self._settings.ray.address
            raise RayLost(f"the connection to Ray at {at} is lost: {short(error)}") from error

    def _read_cards(self) -> None:
        """Read the cards of actors that have come; NoRay if they belong to another service."""
        waiting = {card: worker for worker, card in self._cards.items()}
        if not waiting:
            return
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for reference in ready:
            worker = waiting[reference]
            del self._cards[worker]
            if (job := self._cluster.jobs.get(worker)) is None:
                continue
            try:
                card = msgspec.convert(ray.get(reference), ActorCard)
            except ActorUnavailableError:
                self._cards[worker] = job.actor.card.remote()  # Ray is restarting it
            except RayActorError:
                pass  # it is lost, and will be made again
            except (RayError, msgspec.ValidationError) as error:
                _log.warning("%s is outdated: %s", worker.id, short(error))
                self._outdated.add(worker)
            else:
                self._note_card(worker, card)

    def _note_card(self, worker: Worker, card: ActorCard) -> None:
        if not is_same_service(card, self._card):
            del self._cluster.jobs[worker]
            raise NoRay(
                f"{worker.id} in the namespace {self._settings.ray.namespace} of this Ray cluster"
                " belongs to another dzflow service; give this one another ray.namespace"
            )
        if card.made_with != self._card.made_with:
            self._outdated.add(worker)

    def _replace_one(self) -> list[str]:
        """Replace actors that are outdated, one after the other."""
        self._outdated &= self._cluster.jobs.keys()
        job = self._replaced
        if job is None:
            return self._begin_replacement()
        if self._cluster.jobs.get(job.worker) is not job:
            self._replaced = None  # it was to leave, and has left
        elif self._cluster.has_ended(job):
            self._replaced = None
            self._cluster.create_again(job, job.cpus)
            return [f"{job.id} was made with other settings, and is started again"]
        return []

    def _begin_replacement(self) -> list[str]:
        jobs = self._cluster.jobs.values()
        if not self._outdated or not all(job.runs and job.ending is None for job in jobs):
            return []
        worker = min(self._outdated, key=lambda worker: worker.number)
        self._outdated.remove(worker)
        self._replaced = job = self._cluster.jobs[worker]
        job.ending = job.actor.stop.remote()
        return []
