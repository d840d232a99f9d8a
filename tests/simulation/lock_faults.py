"""Faults of locks in mode `sea`: they are lost, passed on, or taken from a busy owner."""

import asyncio
from collections.abc import Callable
from random import Random

from configurators.partition.worker import PartitionWorker
from configurators.store.keys import locks_of
from tests.simulation.world import Process, World

_SOON = 0.03  # seconds
_LONG = 30.0


class LockFaults:
    """Makes faults of locks. `concern` is called with the ids of tasks in progress."""

    def __init__(self, world: World, random: Random, concern: Callable[[set[str]], None]) -> None:
        self.world = world
        self.random = random
        self.loop = world.loop
        self._concern = concern

    def lose(self) -> str:
        """End the lease of a configurator's locks; the configurator notices when it renews it."""
        held = self._held()
        if not held:
            return ""
        process, name, _ = self.random.choice(held)
        self._revoke(process, name)
        return process.name

    def pass_on(self) -> str:
        """Have a lock released in order, as if another configurator waited for it."""
        held = self._held()
        if not held:
            return ""
        process, name, worker = self.random.choice(held)
        self._release(process, worker)
        return f"{name} by {process.name}"

    def pass_all_on(self) -> None:
        """Have all locks released in order."""
        for process, _, worker in self._held():
            self._release(process, worker)

    def _release(self, process: Process, worker: PartitionWorker) -> None:
        self.loop.at(self.loop.now, process.node.context, worker.stop_soon)

    def usurp(self) -> str:
        """Take a lock from a busy owner, which continues when another configurator has it."""
        busy = [each for each in self._held() if each[2].load().queued]
        if not busy:
            return ""
        process, name, worker = self.random.choice(busy)
        self._concern({item.task.id for item in worker.open_items()})
        if self.random.random() < 0.5:
            for each in self.world.of("dispatcher"):
                each.node.hears_late = self.random.choice((1.0, 2.0))
        how = self.random.choice(("paused", "lost", "both", "both"))
        if how != "paused":
            self._revoke(process, name)
        if how != "lost":
            process.pause(_LONG)
            self.loop.create_task(self._wake(process, name, worker.epoch))
        return f"{name} of {process.name}, {how}"

    async def _wake(self, process: Process, name: str, epoch: int) -> None:
        """Let a process continue soon after a partition has another owner."""
        node, deadline = process.node, self.loop.now + _LONG
        while self.world.owners().get(name, ("", epoch))[1] <= epoch and self.loop.now < deadline:
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.random.uniform(0.0, self.random.choice((_SOON, 10 * _SOON))))
        process.wake(node)

    def _revoke(self, process: Process, name: str) -> None:
        for item in self.world.store.under(locks_of(name)):
            if item.value.decode() == process.name:
                self.world.store.revoke(item.lease)

    def _held(self) -> list[tuple[Process, str, PartitionWorker]]:
        """The partitions that are locked by configurators that run, with their workers."""
        return [
            (process, name, worker)
            for process in self.world.of("configurator")
            if process.alive and process.main
            for name, worker in process.main.partitions.owned.items()
        ]
