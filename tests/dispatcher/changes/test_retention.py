"""Finished records and idempotency keys are bounded by count and bytes, with a real etcd."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import pytest

from configurators.environment import Clock
from configurators.store.etcd.client import Etcd, StoreFull
from configurators.store.keys import FINISHED, GROUPS, KEYS, RECORDS
from configurators.store.retention import Bound, GroupKind
from configurators.store.upkeep import SharedLeases
from dispatcher.changes.retention import Retention
from dispatcher.errors import Problem
from dispatcher.knowledge.siblings import Siblings
from dispatcher.metrics import Metrics
from dispatcher.options import FINISHED_FLOOR, KEY_FLOOR
from dispatcher.requests.calls.idempotency import removed_until
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd
from tests.support import until


class Time:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """One dispatcher's part in what is kept."""

    def __init__(self, etcd: Etcd, siblings: Siblings, time: Time, most: Bound) -> None:
        self.etcd = etcd
        self.time = time
        self.metrics = Metrics()
        self.leases: dict[GroupKind, SharedLeases] = {
            kind: SharedLeases(
                etcd, kind, retention=3_600, monotonic=time, wall=time, group_keys=10
            )
            for kind in ("finished", "keys")
        }
        bounds: dict[GroupKind, Bound] = {
            "finished": Bound(most.keys, most.bytes, FINISHED_FLOOR),
            "keys": Bound(most.keys, most.bytes, KEY_FLOOR),
        }
        self.retention = Retention(
            etcd, siblings, list(self.leases.values()), bounds, self.metrics, Clock(time, time)
        )

    async def write(self, kind: GroupKind, begin: int, count: int, size: int = 100) -> None:
        """Write keys with numbers, and list their groups."""
        under = FINISHED if kind == "finished" else KEYS
        for number in range(begin, begin + count):
            lease = await self.leases[kind].current(1, size)
            await self.etcd.put(f"{under}{number:04}", bytes(size), lease)
        await self.retention.attend()

    async def numbers(self, kind: GroupKind) -> list[int]:
        """The numbers of the keys that exist."""
        under = FINISHED if kind == "finished" else KEYS
        page = await self.etcd.range(under)
        return [int(item.key.removeprefix(under)) for item in page.items]

    async def knows(self, kind: GroupKind, count: int) -> None:
        """Wait until so many groups are known here."""
        await until(lambda: len(self.retention.groups(kind)) == count)


@asynccontextmanager
async def scene(
    etcd_server: TestEtcd, keys: int = 10**6, size: int = 10**9, me: str = "d1"
) -> AsyncIterator[Scene]:
    async with Etcd(etcd_server.access()) as etcd:
        made = Scene(etcd, Siblings(etcd, me), Time(), Bound(keys, size, 0))
        await made.retention.start()
        try:
            yield made
        finally:
            await made.retention.close()


async def test_finished_records_are_bounded_by_count_and_the_newest_stay(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server, keys=50) as s:
        for begin in range(0, 100, 10):
            await s.write("finished", begin, 10)
            s.time.now += 1
        await s.write("finished", 100, 1)
        await s.knows("finished", 10)
        await s.retention.attend()
        assert len(await s.numbers("finished")) == 101  # all are of the last 30 seconds
        s.time.now += FINISHED_FLOOR
        await s.retention.attend()
        assert await s.numbers("finished") == list(range(50, 101))
        assert s.metrics.removed_early == {"finished": 50}
        await s.knows("finished", 5)
        assert s.retention.kept("finished").keys == 50


async def test_finished_records_are_bounded_by_bytes(etcd_server: TestEtcd) -> None:
    async with scene(etcd_server, size=25_000) as s:
        await s.write("finished", 0, 41, size=1_000)
        await s.knows("finished", 4)
        s.time.now += FINISHED_FLOOR
        await s.retention.attend()
        assert await s.numbers("finished") == list(range(20, 41))


async def test_idempotency_keys_of_the_last_ten_minutes_are_never_removed(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server, keys=0) as s:
        await s.write("keys", 0, 21)
        await s.knows("keys", 2)
        s.time.now += KEY_FLOOR - 1
        await s.retention.attend()
        assert len(await s.numbers("keys")) == 21
        s.time.now += 1
        await s.retention.attend()
        assert await s.numbers("keys") == [20]  # of the group that was open until now


async def test_one_of_several_dispatchers_removes_the_groups_of_all_dead_ones_too(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server, keys=20) as s:
        names = ("d1", "d2")
        several = []
        for name in names:
            siblings = Siblings(s.etcd, name)
            siblings.alive.update(names)
            several.append(Scene(s.etcd, siblings, s.time, Bound(20, 10**9, 0)))
        for one in several:
            await one.retention.start()
        first, other = sorted(several, key=lambda one: one.retention.removes_for_all, reverse=True)
        assert first.retention.removes_for_all
        assert not other.retention.removes_for_all
        await s.write("finished", 0, 20)  # of a third one, which is dead now
        await other.write("finished", 20, 21)
        await s.retention.close()
        await first.knows("finished", 4)
        s.time.now += FINISHED_FLOOR
        await other.retention.attend()
        assert len(await s.numbers("finished")) == 41
        await first.retention.attend()
        assert await s.numbers("finished") == list(range(20, 41))
        for one in several:
            await one.retention.close()


async def test_a_dispatcher_that_stops_lists_its_last_group(etcd_server: TestEtcd) -> None:
    async with scene(etcd_server) as s:
        await s.write("finished", 0, 3)
        assert not (await s.etcd.range(GROUPS)).items
        await s.retention.close()
        [listed] = (await s.etcd.range(GROUPS)).items
        assert listed.lease  # it goes with its records


async def test_when_records_are_removed_early_is_known_before_they_are(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server, keys=0) as s:
        assert await removed_until(s.etcd) == 0
        await s.write("finished", 0, 11)
        await s.knows("finished", 1)
        finished = s.time.now
        s.time.now += FINISHED_FLOOR
        await s.retention.attend()
        assert finished <= await removed_until(s.etcd) < s.time.now


async def test_a_process_that_is_killed_before_it_can_announce_removals_loses_nothing(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as s:
        await s.write("keys", 0, 1)
        s.time.now += 60
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(s.etcd, "transact", refuse)
            await s.retention.remove_all_finished()
        assert await removed_until(s.etcd) == inf
        another = Scene(s.etcd, Siblings(s.etcd, "d2"), s.time, Bound(10**6, 10**9, 0))
        await another.retention.start()
        assert s.time.now <= await removed_until(s.etcd) < inf
        await another.retention.close()


async def refuse(*_: object) -> None:
    raise StoreFull("etcd is full, and accepts only deletions")


@pytest.mark.parametrize("removed", [False, True])
async def test_a_repeated_call_does_not_begin_a_record_again_that_was_removed_early(
    etcd_server: TestEtcd, removed: bool
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [record] = views(await d.begin("subscription", specs(1), wait=TIMEOUT, key="k"))
        await d.end("subscription", [record.id], wait=TIMEOUT)
        if removed:
            siblings, bounds = Siblings(w.etcd, "other"), d.options.bounds
            await Retention(w.etcd, siblings, [], bounds, Metrics(), Clock()).remove_all_finished()
        [answer] = await d.begin("subscription", specs(1), wait=TIMEOUT, key="k")
        if removed:
            assert isinstance(answer.problem, Problem)
            assert answer.problem.status == 409
            assert "use a new key" in answer.problem.detail
        else:
            assert answer.record
            assert (answer.record.id, answer.record.state) == (record.id, "removed")
        assert not (await w.etcd.range(RECORDS)).items
