"""A configurator with a limit works on so many partitions at a time, in both modes."""

import asyncio

import pytest
from msgspec.structs import replace

from configurators.ownership.ownership import Mode
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.streams.messages import Done, Task
from sdn.outcomes import Outcome
from sdn.tables.flows import Batch
from tests.configurators.cluster import Cluster, cluster
from tests.etcd import TestEtcd
from tests.support import WAIT, until

OPTIONS = ConfiguratorOptions(tune_gc=False, load_every_s=0.1, lease_s=20, gather_ms=0.0)


class Pushes:
    """The pushes of a configurator: in which order they began, and how many were open at once.

    The first of each partition waits until it is let through.
    """

    def __init__(self, process: ConfiguratorProcess) -> None:
        self.order: list[str] = []
        self.most = 0
        self.open = asyncio.Event()
        self.began = asyncio.Condition()
        self._now: set[str] = set()
        self._apply = process.southbound.apply
        process.southbound.apply = self.apply  # type: ignore[method-assign]

    async def apply(
        self, partition: str, epoch: int, batch: Batch, trace: bytes = b""
    ) -> dict[str, Outcome]:
        self._now.add(partition)
        self.most = max(self.most, len(self._now))
        if partition not in self.order:
            self.order.append(partition)
        async with self.began:
            self.began.notify_all()
        await self.open.wait()
        try:
            return await self._apply(partition, epoch, batch, trace)
        finally:
            self._now.discard(partition)

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(WAIT), self.began:
            await self.began.wait_for(lambda: len(self._now) >= count)


async def begin(it: Cluster) -> dict[str, list[Task]]:
    """Have a publisher, and return a task for each partition that takes flow operations."""
    await it.ready("c1")
    await it.do(it.advertise("x <= 255"))
    found: dict[str, list[Task]] = {}
    for n in range(0, 256, 32):
        for wanted in (f"x in [{n}]", f"y in [{n}]", f"x in [{n}] and y in [{n}]"):
            for name, tasks in it.tasks([it.subscribe(wanted)]).items():
                found.setdefault(name, tasks)
    assert len(found) >= 4
    return found


def send_one_by_one(it: Cluster, tasks: dict[str, list[Task]]) -> list["asyncio.Task[list[Done]]"]:
    """Send (or offer) tasks to partitions, one partition after the other."""
    send = it.offer if it.mode == "sea" else it.send
    return [asyncio.create_task(send({name: some}, "c1")) for name, some in tasks.items()]


@pytest.mark.parametrize("mode", ["sna", "sea"])
async def test_with_a_limit_of_one_the_oldest_request_is_next(
    etcd_server: TestEtcd, mode: Mode
) -> None:
    options = replace(OPTIONS, at_once=1)
    async with (
        cluster(etcd_server.access(), partitions=5, mode=mode) as it,
        it.configurator("c1", options) as c1,
    ):
        tasks = await begin(it)
        pushes = Pushes(c1)
        names = sorted(tasks, reverse=True)
        sent = send_one_by_one(it, {names[0]: tasks[names[0]]})
        await pushes.until_open(1)
        sent += send_one_by_one(it, {name: tasks[name] for name in names[1:]})
        if mode == "sna":  # in mode sea, tasks wait at the dispatcher for their turn
            owned = c1.partitions.owned
            await until(lambda: all(len(owned[name].queue) for name in names[1:]))
        pushes.open.set()
        dones = [done for some in sent for done in await some]
        assert {done.outcome for done in dones} == {"done"}
        assert pushes.order == names
        assert pushes.most == 1


@pytest.mark.parametrize("mode", ["sna", "sea"])
@pytest.mark.parametrize(("at_once", "most"), [(2, 2), (0, 4)])
async def test_as_many_partitions_as_the_limit_allows_are_worked_on(
    etcd_server: TestEtcd, mode: Mode, at_once: int, most: int
) -> None:
    async with (
        cluster(etcd_server.access(), partitions=5, mode=mode) as it,
        it.configurator("c1", replace(OPTIONS, at_once=at_once)) as c1,
    ):
        tasks = dict(list((await begin(it)).items())[:4])
        pushes = Pushes(c1)
        sent = send_one_by_one(it, tasks)
        await pushes.until_open(most)
        pushes.open.set()
        for some in sent:
            await some
        assert pushes.most == most
