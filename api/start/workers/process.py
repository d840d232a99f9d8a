"""Ray and the workers as a child process of `dzflow up`.

It follows the wanted numbers of workers in etcd: it starts workers that are missing, and ends those
that are to leave once they have no work.

Import this module only in a process that was started with `ray_environment.environment`.
"""

import asyncio
import os
import platform

from api.start import child
from api.start.parts import common
from api.start.workers.ray_cluster import Cluster
from api.start.workers.scaling import WorkerScaling
from api.start.workers.supervision import end_all, supervise
from api.start.workers.wanted import placed_kinds, read_counts
from configurators.store import keys
from configurators.store.etcd.client import Etcd
from configurators.store.model import Process
from configurators.store.registration import Registration


async def _work(self: child.Child, stop: asyncio.Event) -> None:
    match self.orders["workers"]:
        case "detached":
            await supervise(self, stop)
        case "ended":
            await end_all(self, stop)
        case _:
            await _run_own(self, stop)


async def _run_own(self: child.Child, stop: asyncio.Event) -> None:
    """Run workers that end with this process."""
    cluster = Cluster(self.settings)
    # In this thread: Ray's processes end with the thread that started them.
    cluster.start()
    async with Etcd(common.access(self.settings)) as etcd:
        counts = await read_counts(etcd, placed_kinds(self.settings))
        await asyncio.to_thread(cluster.start_workers, counts)
        # The API reads this key to find out whether Ray runs, and whether workers can be added.
        process = Process("ray", cluster.connection.address, os.getpid(), platform.node())
        registration = Registration(etcd, keys.RAY, process)
        scaling = WorkerScaling(
            cluster, etcd, registration, self.settings.mode, lambda text: self.report(event=text)
        )
        self.report(ready=True)
        async with asyncio.TaskGroup() as group:
            # It fails if another process manages the workers by now.
            registered = group.create_task(registration.keep())
            await scaling.run(stop)
            registered.cancel()
    cluster.stop()


if __name__ == "__main__":
    child.run(_work)
