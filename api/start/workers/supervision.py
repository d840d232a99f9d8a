"""Supervises configurators that outlive this process; one process at a time does so.

The one that has registered under the key `ray` starts and ends configurators. The others wait until
the key is gone.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing

from api.start import child
from api.start.parts import common
from api.start.probes import answer_probes
from api.start.workers.detached import DetachedWorkers
from api.start.workers.ray_environment import NoRay
from api.start.workers.scaling import WorkerScaling
from api.start.workers.wanted import placed_kinds, read_counts
from configurators.store import keys
from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd
from configurators.store.mirror import Mirror, Snapshot, follow
from configurators.store.model import Process
from configurators.store.registration import Registration, Superseded
from dzflow.aio import unless_set

_RETRY = 2.0  # seconds until joining Ray is tried again


async def supervise(self: child.Child, stop: asyncio.Event) -> None:
    """Wait for this process's turn, then have as many configurators as are wanted, until `stop`.

    NoRay if the configurators that run belong to another service, Superseded if another process
    supervises them by now.
    """

    def get_ready() -> None:
        if not self.ready:
            self.report(ready=True)

    async with (
        answer_probes(self.settings.probes, lambda: self.ready and not stop.is_set()),
        Etcd(common.access(self.settings)) as etcd,
    ):
        while not stop.is_set():
            await unless_set(stop, _wait_for_turn(etcd, get_ready))
            if stop.is_set():
                return
            registration = _registration(self, etcd, replace=False)
            try:
                await _act(self, etcd, registration, stop, get_ready)
            except* Superseded:
                if registration.revision:
                    raise
                # Another one was faster.


async def end_all(self: child.Child, stop: asyncio.Event) -> None:
    """End all configurators, also those that another process supervises.

    None is started until a count is stored.
    """
    async with Etcd(common.access(self.settings)) as etcd, asyncio.TaskGroup() as group:
        registration = _registration(self, etcd, replace=True)
        registered = group.create_task(registration.keep())
        await registration.known.wait()
        await etcd.delete(keys.wanted_key("configurators"))
        workers = DetachedWorkers(self.settings)
        await _join(self, workers)
        try:
            # The process that has supervised them may be starting one at this moment.
            while found := await asyncio.to_thread(workers.adopt):
                await asyncio.to_thread(workers.end_all)
                self.report(event=f"{len(found)} configurators have ended")
        finally:
            await asyncio.to_thread(workers.leave)
        registered.cancel()
    self.report(ready=True)
    await stop.wait()


def _registration(self: child.Child, etcd: Etcd, *, replace: bool) -> Registration:
    address, node = self.settings.ray.address or "", self.orders["node"]
    process = Process("ray", address, os.getpid(), node)
    return Registration(etcd, keys.RAY, process, replace=replace)


async def _wait_for_turn(etcd: Etcd, on_wait: Callable[[], None]) -> None:
    """Return when no process is registered; `on_wait` is called if there is one."""
    there = False
    async with aclosing(follow(etcd, keys.RAY)) as updates:
        async for update in updates:
            if isinstance(update, Snapshot):
                there = False
            for change in update.changes:
                if not change.name:
                    there = change.value is not None
            if not there:
                return
            on_wait()


async def _join(self: child.Child, workers: DetachedWorkers) -> None:
    """Join Ray as soon as that is possible: its head may be started later."""
    while True:
        try:
            await asyncio.to_thread(workers.join)
        except NoRay as error:
            self.report(event=str(error))
            await asyncio.to_thread(workers.leave)
            await asyncio.sleep(_RETRY)
        else:
            return


async def _act(
    self: child.Child,
    etcd: Etcd,
    registration: Registration,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
) -> None:
    """Join Ray, register, and supervise the configurators until `stop` is set.

    Superseded if another process has registered by then. A process that cannot join Ray does not
    register: another one may be able to.
    """

    def registered_by(name: str, value: bytes | None, revision: int) -> None:
        if not name and value is not None:
            registration.observe(decode_process(value), revision)

    workers = DetachedWorkers(self.settings)
    try:
        await unless_set(stop, _join(self, workers))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(registration.keep()),
                group.create_task(Mirror(etcd, keys.RAY, bytes, registered_by).run()),
            ]
            await unless_set(stop, registration.known.wait())
            if not stop.is_set():
                for text in await asyncio.to_thread(workers.adopt):
                    self.report(event=text)
                on_ready()
                await unless_set(stop, read_counts(etcd, placed_kinds(self.settings)))
                scaling = WorkerScaling(
                    workers,
                    etcd,
                    registration,
                    self.settings.mode,
                    lambda text: self.report(event=text),
                    one_of_several=True,
                )
                await scaling.run(stop)
            for task in tasks:
                task.cancel()
    finally:
        await asyncio.to_thread(workers.leave)
