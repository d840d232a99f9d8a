"""Mode `sea` as a whole: dispatchers offer, configurators lock, and nothing is lost or doubled."""

import asyncio
from contextlib import ExitStack
from itertools import count
from random import Random
from typing import Any

import pytest

from configurators.process import ConfiguratorOptions
from configurators.store.keys import JOURNAL, LOCKS, journal_of
from configurators.store.locks import Locks
from configurators.streams.messages import Done, Dones
from dispatcher.calls import RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.requests.delivery.gathering import Gatherer
from dispatcher.requests.operation import Operation
from sdn.emulator.model import SwitchModel
from tests.configurators.child import ConfiguratorChild, configurator_child
from tests.dispatcher.support import SCHEMA, TIMEOUT, TOKEN, random_filter, views
from tests.dispatcher.whole import Whole, whole
from tests.etcd import TestEtcd
from tests.support import until

SLOW = SwitchModel(acknowledge_after=0.03)


def wants(rng: Random, count: int) -> list[RecordSpec]:
    return [RecordSpec(f"h{rng.randint(1, 3)}", "stocks", random_filter(rng)) for _ in range(count)]


async def offered(d: Dispatcher) -> None:
    """A space that publishers write to."""
    await d.put_space("stocks", SCHEMA)
    hosts = [RecordSpec(host, "stocks", {}) for host in ("h1", "h2")]
    views(await d.begin("advertisement", hosts, wait=TIMEOUT))


async def owner(d: Dispatcher, alive: list[ConfiguratorChild]) -> ConfiguratorChild:
    """The configurator that has most partitions."""
    counts = {view.id: view.partitions for view in d.status.configurators()}
    return max(alive, key=lambda process: counts.get(process.id, 0))


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_what_a_configurator_leaves_half_done_others_finish(
    etcd_server: TestEtcd, how: str
) -> None:
    rng = Random(5)
    access = etcd_server.access()
    with ExitStack() as stack:
        alive = [
            stack.enter_context(configurator_child(access, TOKEN, f"c{n}")) for n in range(1, 4)
        ]
        async with (
            whole(access, mode="sea", configurators=0, model=SLOW) as w,
            w.dispatcher() as d,
        ):
            await offered(d)
            first = asyncio.create_task(d.begin("subscription", wants(rng, 200), wait=TIMEOUT))

            async def under_way() -> bool:
                found = (await d.records("subscription", limit=1000)).items
                return any(record.state == "active" for record in found)

            await until(under_way)
            gone = await owner(d, alive)
            gone.kill() if how == "killed" else gone.pause()
            second = await d.begin("subscription", wants(rng, 200), wait=TIMEOUT)
            records = views([*await first, *second])
            assert {record.state for record in records} == {"active"}
            assert await w.check_flows(d) > 100

            async def without_it() -> bool:
                return gone.id not in {part.configurator for part in d.status.partitions()}

            await until(without_it)
            if how == "paused":
                gone.resume()
                views(await d.begin("subscription", wants(rng, 50), wait=TIMEOUT))
                await w.check_flows(d)
            ends = [record.id for record in records]
            views(await d.end("subscription", ends, wait=TIMEOUT))
            await w.check_flows(d)


async def test_several_dispatchers_share_configurators(etcd_server: TestEtcd) -> None:
    async with (
        whole(etcd_server.access(), mode="sea", configurators=3) as w,
        w.dispatcher() as d1,
        w.dispatcher() as d2,
    ):
        await offered(d1)

        async def known() -> bool:
            return [space.name for space in d2.status.spaces()] == ["stocks"]

        await until(known)

        async def live(d: Dispatcher, seed: int) -> None:
            rng = Random(seed)
            for _ in range(4):
                records = views(await d.begin("subscription", wants(rng, 25), wait=TIMEOUT))
                answer = await d.update(
                    "subscription", records[0].id, random_filter(rng), wait=TIMEOUT
                )
                assert answer.status == 200, answer.problem
                ends = [record.id for record in records[1::2]]
                other = d2 if d is d1 else d1
                views(await other.end("subscription", ends, wait=TIMEOUT))

        await asyncio.gather(live(d1, 1), live(d2, 2), live(d1, 3))
        assert len((await d2.records("subscription", limit=1000)).items) == 3 * 4 * 13
        assert await w.check_flows(d1) > 50


async def test_a_partition_that_cannot_be_locked_does_not_keep_others_waiting(
    etcd_server: TestEtcd,
) -> None:
    """And what was done of a request elsewhere is not forgotten when others take over."""

    access = etcd_server.access()
    with ExitStack() as stack:
        first = stack.enter_context(configurator_child(access, TOKEN, "c1"))
        async with (
            whole(access, mode="sea", configurators=0) as w,
            w.dispatcher(partitions=4) as d,
        ):
            await offered(d)
            everywhere = RecordSpec("h3", "stocks", {})
            [known] = views(await d.begin("advertisement", [everywhere], wait=TIMEOUT))
            assert len(known.partitions) > 1
            blocked = known.partitions[0]
            async with Locks(w.etcd, "somebody", 10) as locks:
                lock = await locks.wait(blocked, lambda: True)
                assert lock
                [open_one] = await d.begin("advertisement", [everywhere], wait=0)
                assert open_one.record
                others = known.partitions[1:]

                async def done_elsewhere() -> bool:
                    name = open_one.record.id.encode() if open_one.record else b""
                    found = [(await w.etcd.range(journal_of(p))).items for p in others]
                    return all(any(name in one.value for one in some) for some in found)

                await until(done_elsewhere)
                elsewhere = [
                    RecordSpec("h2", "stocks", {"symbol": {"in": [s]}, "price": {"lt": n}})
                    for s in ("ACME", "XYZ")
                    for n in range(100, 1000, 50)
                ]
                tried = views(await d.begin("subscription", elsewhere, wait=0))

                async def some_active() -> bool:
                    return "active" in {(await d.record(record.id)).state for record in tried}

                await until(some_active)

                def only_the_blocked_is_left() -> bool:
                    operations = d._parts.pipeline.in_flight
                    left = {name for each in operations for name in each.rollout.open}
                    return not d.queue()[0] and left == {blocked}

                await until(only_the_blocked_is_left)
                first.kill()
                stack.enter_context(configurator_child(access, TOKEN, "c2"))

                async def taken_over() -> bool:
                    parts = {p.id: p for p in d.status.partitions()}
                    return all(
                        parts[p].configurator == "c2" and parts[p].state == "ready" for p in others
                    )

                await until(taken_over)
                assert sum(p.tasks for p in d.status.partitions() if p.id in others) == 0
                again = await d.record(open_one.record.id)
                assert again.state == "pending"
                await locks.release(lock, None)

                async def active() -> bool:
                    found = (await d.records("subscription", limit=1000)).items
                    found += (await d.records("advertisement")).items
                    return {record.state for record in found} == {"active"}

                await until(active)
                await w.check_flows(d)


async def test_tasks_of_a_partition_are_done_in_the_order_they_came(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while its lock goes from one configurator to the other."""

    came: list[str] = []
    dones: list[Done] = []
    deliver, tasks_done = Gatherer.deliver, Gatherer.tasks_done

    def note_operation(self: Gatherer, operation: Operation) -> None:
        if operation.kind == "subscription":
            came.append(operation.id)
        deliver(self, operation)

    def note_dones(self: Gatherer, message: Dones, configurator: str) -> None:
        dones.extend(done for done in message.dones if done.id in came and done.outcome == "done")
        tasks_done(self, message, configurator)

    monkeypatch.setattr(Gatherer, "deliver", note_operation)
    monkeypatch.setattr(Gatherer, "tasks_done", note_dones)
    small = ConfiguratorOptions(tune_gc=False, slice_limit=4)
    async with (
        whole(etcd_server.access(), mode="sea", model=SLOW, options=small) as w,
        w.dispatcher(partitions=1) as d,
    ):
        await offered(d)
        moving = asyncio.create_task(_move_locks(w))
        try:
            views(await d.begin("subscription", wants(Random(7), 80), wait=TIMEOUT))
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
        assert len({done.epoch for done in dones}) > 2
        in_time = sorted(dones, key=lambda done: (done.epoch, done.slice))
        assert [done.id for done in in_time] == came
        await w.check_flows(d)


async def _move_locks(w: Whole) -> None:
    """Want every lock, again and again, so that whoever has it lets it go."""
    changed = asyncio.Event()
    async with Locks(w.etcd, "somebody", 10, lambda _: changed.set()) as locks:
        while True:
            changed.clear()
            for name in list(locks.table.holders()):
                lock = await locks.wait(name, lambda: True)
                if lock:
                    await locks.release(lock, lock.mark)
            await changed.wait()


async def _lock_keys(w: Whole) -> set[tuple[str, int]]:
    return {(item.key, item.created) for item in (await w.etcd.range(LOCKS)).items}


async def test_locks_stay_where_they_are_while_no_task_waits_for_long(
    etcd_server: TestEtcd,
) -> None:
    patient = ConfiguratorOptions(tune_gc=False, lease_s=20, patience_s=TIMEOUT)
    async with (
        whole(etcd_server.access(), mode="sea", configurators=3, options=patient) as w,
        w.dispatcher(partitions=4) as d,
    ):
        await offered(d)
        before = await _lock_keys(w)
        for seed in range(10):
            views(await d.begin("subscription", wants(Random(seed), 20), wait=TIMEOUT))
        assert await _lock_keys(w) == before
        await w.check_flows(d)


async def test_an_idle_configurator_relieves_an_overloaded_one(etcd_server: TestEtcd) -> None:
    options = ConfiguratorOptions(
        tune_gc=False, lease_s=20, mode="sea", patience_s=0.01, at_once=1, slice_limit=5
    )
    access = etcd_server.access()
    async with (
        whole(access, mode="sea", configurators=1, model=SLOW, options=options) as w,
        w.dispatcher(partitions=4) as d,
    ):
        await offered(d)
        with configurator_child(access, TOKEN, "c2", options):
            owners: set[str] = set()
            async with asyncio.timeout(TIMEOUT):
                for turn in count():
                    if owners == {"c1", "c2"}:
                        break
                    # Other ones each time: what is there already takes no switch, and no time.
                    spread = [
                        RecordSpec("h3", "stocks", {"volume": {"between": [low, low + n]}})
                        for n in range(50)
                        for low in (100 * turn, 90_000 + 100 * turn)  # in two partitions
                    ]
                    views(await d.begin("subscription", spread, wait=TIMEOUT))
                    owners = {part.configurator for part in d.status.partitions()}
            await w.check_flows(d)


async def test_locks_and_journals_go_with_their_space(etcd_server: TestEtcd) -> None:
    async with (
        whole(etcd_server.access(), mode="sea") as w,
        w.dispatcher(partitions=2) as d,
    ):
        for _ in range(2):
            await offered(d)
            [record] = views(
                await d.begin("subscription", [RecordSpec("h3", "stocks", {})], wait=TIMEOUT)
            )
            assert await w.check_flows(d) > 0
            assert (await w.etcd.range(JOURNAL)).items
            ends: list[Any] = [record.id]
            views(await d.end("subscription", ends, wait=TIMEOUT))
            ends = [view.id for view in (await d.records("advertisement")).items]
            views(await d.end("advertisement", ends, wait=TIMEOUT))
            await d.delete_space("stocks")

            async def gone() -> bool:
                left = (await w.etcd.range(LOCKS)).items
                return not left and not (await w.etcd.range(JOURNAL)).items

            await until(gone)
            assert await w.check_flows(d) == 0
