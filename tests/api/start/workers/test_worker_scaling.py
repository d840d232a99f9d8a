"""Workers are started and ended as etcd says; those that leave end when they have no work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import pytest

from api.start.workers.ray_environment import NoRay, RayLost
from api.start.workers.scaling import LONG, WorkerScaling
from api.start.workers.wanted import Worker
from configurators.environment import Clock
from configurators.store.documents import Delays, decode_delays, encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import CONNECTIONS, DELAYS, RAY, owner_key, wanted_key
from configurators.store.model import Connections, Process, Wanted, WorkerKind
from configurators.store.registration import Registration
from tests.etcd import TestEtcd
from tests.support import WAIT, until


class Pool:
    """Workers that start at once, and end when they are asked for the second time."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.asked: list[Worker] = []
        self.late: dict[Worker, str] = {}
        self.full = False
        self.lost = False
        self.slow = False  # workers that were asked to end have not ended yet
        self.events: list[str] = []

    def start_worker(self, worker: Worker) -> None:
        if self.full:
            raise NoRay("no node is alive")
        self.workers.append(worker)

    def end_worker(self, worker: Worker) -> bool:
        self.asked.append(worker)
        if self.asked.count(worker) > 1 and not self.slow:
            self.workers.remove(worker)
            return True
        return False

    def check(self) -> list[str]:
        if self.lost:
            raise RayLost("Ray has ended")
        told, self.events = self.events, []
        return told

    def delays(self) -> dict[Worker, str]:
        return dict(self.late)

    @property
    def ids(self) -> list[str]:
        return sorted(worker.id for worker in self.workers)


class Managed:
    """A pool that follows etcd."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self.pool = Pool()
        self.said: list[str] = []
        self.now = 0.0

    async def want(self, kind: WorkerKind, count: int) -> None:
        await self.etcd.put(wanted_key(kind), encode(Wanted(count)))

    async def delays(self) -> Delays:
        stored = await self.etcd.get(DELAYS)
        return decode_delays(stored.value) if stored else {}

    async def until_delayed(self, kind: WorkerKind, *words: str) -> None:
        """Wait until it is stored why a worker waits."""

        async def stored() -> bool:
            texts = (await self.delays()).get(kind, {}).values()
            return any(all(word in text for word in words) for text in texts)

        await until(stored)

    async def until_ids(self, *ids: str) -> None:
        await until(lambda: self.pool.ids == sorted(ids))


@asynccontextmanager
async def managed(
    server: TestEtcd, mode: Literal["sna", "sea"] = "sna", first: Sequence[int] = (2, 1)
) -> AsyncIterator[Managed]:
    async with Etcd(server.access()) as etcd:
        it = Managed(etcd)
        await it.want("configurators", first[0])
        await it.want("southbound", first[1])
        registration = Registration(etcd, RAY, Process("ray", "here", 1, "here"))
        scaling = WorkerScaling(
            it.pool,
            etcd,
            registration,
            mode,
            it.said.append,
            Clock(monotonic=lambda: it.now),
            every=0.02,
        )
        stop = asyncio.Event()
        registered = asyncio.create_task(registration.keep())
        running = asyncio.create_task(scaling.run(stop))
        try:
            await it.until_ids("configurator-1", "configurator-2", "southbound-1")
            yield it
        finally:
            stop.set()
            await asyncio.wait_for(running, WAIT)
            registered.cancel()
            await asyncio.gather(registered, return_exceptions=True)


async def test_workers_are_started_until_there_are_enough(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server) as it:
        await it.want("configurators", 4)
        await it.want("southbound", 2)
        four = [f"configurator-{number}" for number in range(1, 5)]
        await it.until_ids(*four, "southbound-1", "southbound-2")
        await until(lambda: "configurator-4 is started" in it.said)


async def test_a_configurator_that_leaves_ends_when_it_owns_no_partition(
    etcd_server: TestEtcd,
) -> None:
    async with managed(etcd_server) as it:
        await it.etcd.put(owner_key("1.0/a"), b"configurator-1")
        await it.etcd.put(owner_key("1.0/b"), b"configurator-2")
        await it.want("configurators", 1)
        await it.until_delayed("configurators", "1 partition", "1.0/b")
        assert it.pool.asked == []
        await it.etcd.put(owner_key("1.0/b"), b"configurator-1")
        await it.until_ids("configurator-1", "southbound-1")
        told = ["configurator-2 ends as soon as it has no work", "configurator-2 has ended"]
        await until(lambda: it.said[-2:] == told)

        async def nothing_left() -> bool:
            return await it.delays() == {"southbound": {}, "configurators": {}}

        await until(nothing_left)


async def test_the_process_ends_if_no_worker_can_be_started_any_more(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        pool = Pool()
        registration = Registration(etcd, RAY, Process("ray", "here", 1, "here"))
        said: list[str] = []
        scaling = WorkerScaling(pool, etcd, registration, "sna", said.append, every=0.02)
        running = asyncio.create_task(scaling.run(asyncio.Event()))
        await etcd.put(wanted_key("configurators"), encode(Wanted(1)))
        await until(lambda: pool.ids == ["configurator-1"])
        pool.lost = True
        with pytest.raises(ExceptionGroup, check=lambda group: bool(group.subgroup(RayLost))):
            await asyncio.wait_for(running, WAIT)


async def test_a_worker_that_is_wanted_again_while_it_ends_is_started_again(
    etcd_server: TestEtcd,
) -> None:
    async with managed(etcd_server) as it:
        it.pool.slow = True
        await it.want("configurators", 1)
        await until(lambda: it.pool.asked)
        await it.want("configurators", 2)
        asked = len(it.pool.asked)
        await until(lambda: len(it.pool.asked) >= asked + 2)
        it.pool.slow = False
        await until(
            lambda: it.said[-2:] == ["configurator-2 has ended", "configurator-2 is started"]
        )
        await it.until_ids("configurator-1", "configurator-2", "southbound-1")


async def test_the_highest_numbers_leave_first(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server) as it:
        await it.want("configurators", 5)
        await until(lambda: len(it.pool.workers) == 6)
        await it.want("configurators", 2)
        await it.until_ids("configurator-1", "configurator-2", "southbound-1")
        assert [worker.number for worker in it.pool.asked[:3]] == [5, 4, 3]


async def test_in_mode_sea_a_configurator_is_asked_to_end_at_once(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server, "sea") as it:
        # As of a time when the mode was another one.
        await it.etcd.put(owner_key("1.0/b"), b"configurator-2")
        await it.want("configurators", 1)
        await it.until_ids("configurator-1", "southbound-1")


async def test_a_southbound_process_that_leaves_ends_when_it_has_no_switch(
    etcd_server: TestEtcd,
) -> None:
    async with managed(etcd_server) as it:
        await it.want("southbound", 2)
        await until(lambda: "southbound-2" in it.pool.ids)
        key = CONNECTIONS + "southbound-2"
        switches = ("s1", "s2", "s3", "s4")
        await it.etcd.put(key, encode(Connections(switches, switches)))
        await it.want("southbound", 1)
        await it.until_delayed("southbound", "4 switches (s1, s2, s3, …)")
        await it.etcd.put(key, encode(Connections(switches, ("s3",))))
        await it.until_delayed("southbound", "1 switch (s3)")
        await it.etcd.put(key, encode(Connections(switches)))
        await it.until_ids("configurator-1", "configurator-2", "southbound-1")


async def test_a_worker_that_is_wanted_again_stays(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server) as it:
        await it.etcd.put(owner_key("1.0/b"), b"configurator-2")
        await it.want("configurators", 1)
        await it.until_delayed("configurators", "1.0/b")
        await it.want("configurators", 2)

        async def stays() -> bool:
            return (await it.delays())["configurators"] == {}

        await until(stays)
        assert it.pool.asked == []
        assert "configurator-2" in it.pool.ids


async def test_it_is_said_once_why_a_worker_has_not_left_for_long(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server) as it:
        await it.etcd.put(owner_key("1.0/b"), b"configurator-2")
        await it.want("configurators", 1)
        await it.until_delayed("configurators", "1.0/b")
        it.now = LONG + 1
        await until(lambda: any("has not left for 61 s: it owns" in text for text in it.said))
        it.now = 2 * LONG
        await it.etcd.put(owner_key("1.0/b"), b"configurator-1")
        await it.until_ids("configurator-1", "southbound-1")
        assert sum("has not left" in text for text in it.said) == 1


async def test_a_worker_that_cannot_be_started_is_tried_again(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server) as it:
        it.pool.full = True
        await it.want("configurators", 3)
        await until(lambda: "configurator-3 cannot be started now: no node is alive" in it.said)
        it.pool.full = False
        await until(lambda: "configurator-3" in it.pool.ids)
        assert sum("cannot be started" in text for text in it.said) == 1


async def test_workers_that_wait_for_resources_are_stored_with_the_reason(
    etcd_server: TestEtcd,
) -> None:
    async with managed(etcd_server) as it:
        it.pool.late = {Worker("configurators", 2): "waiting for resources"}
        it.pool.events.append("southbound-1 was at a and is started at b")
        await it.until_delayed("configurators", "waiting for resources")
        await until(lambda: "southbound-1 was at a and is started at b" in it.said)


async def test_a_count_that_cannot_be_read_changes_nothing(etcd_server: TestEtcd) -> None:
    async with managed(etcd_server) as it:
        await it.etcd.put(wanted_key("configurators"), b"many")
        await it.want("southbound", 2)
        await it.until_ids("configurator-1", "configurator-2", "southbound-1", "southbound-2")


async def test_one_of_several_processes_does_nothing_while_it_is_not_registered(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, asyncio.timeout(WAIT):
        it = Managed(etcd)
        registration = Registration(etcd, RAY, Process("ray", "here", 1, "here"))
        registered: list[bool] = []

        class Watched(Pool):
            def check(self) -> list[str]:
                registered.append(registration.known.is_set())
                return super().check()

        pool = it.pool = Watched()
        scaling = WorkerScaling(
            pool, etcd, registration, "sna", it.said.append, every=0.001, one_of_several=True
        )
        stop = asyncio.Event()
        running = asyncio.create_task(scaling.run(stop))
        for count in range(1, 20):  # it follows the count, and might act
            await it.want("configurators", count)
        keeping = asyncio.create_task(registration.keep())
        await until(lambda: len(pool.workers) == 19)
        assert all(registered)
        stop.set()
        await running
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
