"""Starts and ends workers, so that there are as many as etcd says.

A worker that is to leave ends when it has no work any more, however long that takes: nothing that
it does is interrupted.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, Protocol

from api.start.workers.ray_environment import NoRay
from api.start.workers.wanted import KINDS, Worker
from configurators.environment import Clock
from configurators.state.draining import why_configurator_stays, why_southbound_stays
from configurators.state.wanted import leaving, read_count
from configurators.store.documents import Delays, encode
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import DELAYS, WANTED
from configurators.store.mirror import Mirror
from configurators.store.registration import Registration

CHECK_SECONDS = 1.0
LONG = 60.0  # seconds after which it is said why a worker has not left


class WorkerPool(Protocol):
    """Where workers run; no call waits for a worker."""

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers that were started, and have not ended."""

    def start_worker(self, worker: Worker) -> None:
        """Start a worker; NoRay if that is not possible now."""

    def end_worker(self, worker: Worker) -> bool:
        """Ask a worker to end in order; whether it has ended."""

    def check(self) -> list[str]:
        """Start workers elsewhere that are lost; what was done, as texts.

        NoRay as above, RayLost if no worker can be started any more.
        """

    def delays(self) -> dict[Worker, str]:
        """Why workers have not started yet."""


class WorkerScaling:
    """Follows the wanted counts; `tell` gets what happens, as texts.

    Why workers have not started or ended yet is stored for the API, under the `registration` of
    this process.
    """

    def __init__(
        self,
        pool: WorkerPool,
        etcd: Etcd,
        registration: Registration,
        mode: Literal["sna", "sea"],
        tell: Callable[[str], None],
        clock: Clock | None = None,
        every: float = CHECK_SECONDS,
        *,
        one_of_several: bool = False,
    ) -> None:
        """If this process is `one_of_several`, it does nothing while it is not registered."""
        self._pool = pool
        self._etcd = etcd
        self._registration = registration
        self._mode = mode
        self._tell = tell
        self._clock = clock or Clock()
        self._every = every
        self._one_of_several = one_of_several
        self._counts: dict[str, int] = {}
        self._wanted = Mirror(etcd, WANTED, bytes, self._count_changed)
        self._changed = asyncio.Event()
        self._leaving: dict[Worker, float] = {}  # since when
        self._ending: set[Worker] = set()  # those that were asked to end, and have not yet
        self._told: set[str] = set()  # workers whose trouble was told, and lasts
        self._stored: tuple[int, Delays] | None = None  # under this registration

    async def run(self, stop: asyncio.Event) -> None:
        """Start and end workers until `stop` is set; the pool is not used any more on return.

        Fails if the pool is lost.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._wanted.run()),
                group.create_task(self._wake_at(stop)),
            ]
            while not stop.is_set():
                self._changed.clear()
                try:
                    await self._step()
                except StoreError as error:
                    self._tell_once("etcd", f"workers cannot be added or ended: {error}")
                else:
                    self._told.discard("etcd")
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every):
                        await self._changed.wait()
            for task in tasks:
                task.cancel()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._changed.set()

    def _count_changed(self, kind: str, stored: bytes | None, revision: int) -> None:  # noqa: ARG002
        if (count := read_count(stored)) is not None:
            self._counts[kind] = count
            self._changed.set()

    async def _step(self) -> None:
        if self._one_of_several and not self._registration.known.is_set():
            return  # another one may do it by now
        delays = await self._keep_running()
        for kind in KINDS:
            workers = {each.id: each for each in self._pool.workers if each.kind == kind}
            wanted = self._counts.get(kind)
            if wanted is None:
                continue
            there = {each.number for each in workers.values()}
            for number in range(1, wanted + 1):
                if number not in there:
                    await self._start(Worker(kind, number))
            # One that was asked to end does so, even if it is wanted again: then it is restarted.
            ending = {each.id for each in self._ending if each.id in workers}
            surplus = sorted(leaving(workers, wanted) | ending, key=lambda id: -workers[id].number)
            self._note_leaving([workers[id] for id in surplus], kind)
            for id in surplus:
                if reason := await self._end(workers[id]):
                    delays[workers[id]] = reason
        await self._store(delays)

    async def _keep_running(self) -> dict[Worker, str]:
        """Have lost workers started elsewhere; why workers have not started yet."""
        try:
            for event in await asyncio.to_thread(self._pool.check):
                self._tell(event)
            self._told.discard("check")
        except NoRay as error:
            self._tell_once("check", str(error))
        return await asyncio.to_thread(self._pool.delays)

    async def _start(self, worker: Worker) -> None:
        try:
            await asyncio.to_thread(self._pool.start_worker, worker)
        except NoRay as error:
            self._tell_once(worker.id, f"{worker.id} cannot be started now: {error}")
        else:
            self._told.discard(worker.id)
            self._tell(f"{worker.id} is started")

    def _note_leaving(self, surplus: Sequence[Worker], kind: str) -> None:
        now = self._clock.monotonic()
        for worker in surplus:
            if worker not in self._leaving:
                self._leaving[worker] = now
                self._tell(f"{worker.id} ends as soon as it has no work")
        for worker in [w for w in self._leaving if w.kind == kind and w not in surplus]:
            del self._leaving[worker]
            self._told.discard(worker.id)

    async def _end(self, worker: Worker) -> str | None:
        """End a worker that has no work; why it has not ended, if so."""
        reason = None if worker in self._ending else await self._why_busy(worker)
        if reason is None:
            self._ending.add(worker)
            if await asyncio.to_thread(self._pool.end_worker, worker):
                self._ending.remove(worker)
                self._tell(f"{worker.id} has ended")
                return None
            reason = "it is ending"
        lasted = self._clock.monotonic() - self._leaving[worker]
        if lasted > LONG:
            self._tell_once(worker.id, f"{worker.id} has not left for {lasted:.0f} s: {reason}")
        return reason

    async def _why_busy(self, worker: Worker) -> str | None:
        if worker.kind == "southbound":
            return await why_southbound_stays(self._etcd, worker.id)
        # In mode `sea` it owns nothing: it releases its locks when it ends.
        return None if self._mode == "sea" else await why_configurator_stays(self._etcd, worker.id)

    async def _store(self, delays: Mapping[Worker, str]) -> None:
        """Store why workers have not started or ended, if that has changed."""
        if not self._registration.known.is_set():
            return
        found: Delays = {kind: {} for kind in KINDS}
        for worker, reason in delays.items():
            found[worker.kind][worker.id] = reason
        now = self._registration.revision, found
        if now != self._stored:
            await self._registration.put(DELAYS, encode(found))
            self._stored = now

    def _tell_once(self, about: str, text: str) -> None:
        """Tell of a trouble when it begins, and not again while it lasts."""
        if about not in self._told:
            self._told.add(about)
            self._tell(text)
