"""Configurators that share all partitions (mode `sea`): locks, and what happens without them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import chain
from typing import Any, Self

import pytest
from msgspec.structs import replace

from configurators.ownership.locked import LockedOwnership
from configurators.ownership.ownership import OwnershipContext
from configurators.ownership.partition_log import LogOptions
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.state.network import with_host
from configurators.store import keys
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Lease, Stored
from configurators.store.locks import Lock, Locks
from configurators.store.model import NextFilter, Record
from configurators.streams.addresses import split_address
from configurators.streams.messages import Offers
from sdn.fence import Fence
from sdn.network.topology import Host
from sdn.outcomes import Outcome
from sdn.tables.flows import Batch, FlowEntry
from tests.configurators.cluster import Cluster, cluster
from tests.etcd import TestEtcd
from tests.support import WAIT, until

OPTIONS = ConfiguratorOptions(tune_gc=False, load_every_s=0.1, lease_s=20, patience_s=0.01)


class NoLocks(Locks):
    """Locks that every configurator gets, and none knows of the others."""

    def __init__(self, etcd: Etcd, who: str, ttl: int, **_: object) -> None:
        super().__init__(etcd, who, ttl)
        self.etcd = etcd
        self.ttl = ttl
        self.lease: Lease

    async def __aenter__(self) -> Self:
        self.lease = await self.etcd.lease(self.ttl).__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.lease.__aexit__(*error)

    async def try_lock(self, partition: str) -> Lock | None:
        key = f"{keys.locks_of(partition)}{self.lease.id:x}"
        epoch = await self.etcd.put(key, b"everybody", self.lease.id)
        return Lock(partition, epoch, key, self.lease)

    async def release(self, lock: Lock, _mark: bytes | None) -> None:
        await self.etcd.delete(lock.key)


def without_locks(context: OwnershipContext) -> LockedOwnership:
    return LockedOwnership(context, OPTIONS.for_locked(), NoLocks)


class Gate:
    """Stands between the decision of a configurator and the switches."""

    def __init__(self, process: ConfiguratorProcess) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self._apply = process.southbound.apply
        process.southbound.apply = self.apply  # type: ignore[method-assign]

    async def apply(
        self, partition: str, epoch: int, batch: Batch, trace: bytes = b""
    ) -> dict[str, Outcome]:
        self.reached.set()
        await self.open.wait()
        return await self._apply(partition, epoch, batch, trace)


@asynccontextmanager
async def small(etcd_server: TestEtcd, partitions: int = 1) -> AsyncIterator[Cluster]:
    """A line of switches; the last one has three hosts: h3, a and b.

    Under the plan `lpm` a region has one flow on a switch, with all its legs.
    """
    access = etcd_server.access()
    more = [Host(host, "s3", 8 + number) for number, host in enumerate("ab")]
    async with cluster(access, plan="lpm", partitions=partitions, mode="sea", hosts=more) as it:
        yield it


async def begin(it: Cluster) -> None:
    """What there is before: a publisher, and one subscriber behind the last switch."""
    await store(it, it.advertise("x < 100"), it.subscribe("x < 50", "h3"))


async def store(it: Cluster, *records: Record) -> None:
    for record in records:
        it.records[record.id] = record
        await it.etcd.put(keys.record_key(record.id), encode(record))


def missing(it: Cluster) -> set[FlowEntry]:
    """What switches should have and have not."""
    held = it.held()
    return set(chain(*(entries - held[switch] for switch, entries in it.expected().items())))


async def decided(*gates: Gate) -> None:
    async with asyncio.timeout(WAIT):
        for gate in gates:
            await gate.reached.wait()


async def test_without_locks_one_of_two_concurrent_decisions_loses_its_entries(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figure 6.3 of the thesis: both replace the same flow, each without the other's leg."""
    monkeypatch.setattr(Fence, "stale", lambda *_: False)

    async with small(etcd_server) as it:
        await begin(it)
        async with (
            it.configurator("c1", OPTIONS, ownership=without_locks) as c1,
            it.configurator("c2", OPTIONS, ownership=without_locks) as c2,
        ):
            await it.ready("c1")
            await it.ready("c2")
            it.check()
            first, second = it.subscribe("x < 50", "a"), it.subscribe("x < 50", "b")
            gates = Gate(c1), Gate(c2)
            doing = [
                asyncio.create_task(it.send(it.tasks([first]), "c1")),
                asyncio.create_task(it.send(it.tasks([second]), "c2")),
            ]
            await decided(*gates)
            for gate, task in zip(gates, doing, strict=True):
                gate.open.set()
                assert {done.outcome for done in await task} == {"done"}
            await store(it, first, second)
            assert missing(it)


async def test_with_locks_the_second_configurator_decides_after_the_first_is_done(
    etcd_server: TestEtcd,
) -> None:
    async with small(etcd_server) as it:
        await begin(it)
        async with it.configurator("c1", OPTIONS) as c1:
            await it.ready("c1")
            async with it.configurator("c2", OPTIONS) as c2:
                first, second = it.subscribe("x < 50", "a"), it.subscribe("x < 50", "b")
                gate = Gate(c1)
                doing = asyncio.create_task(it.send(it.tasks([first]), "c1"))
                await decided(gate)
                [name] = it.tasks([second])
                early = await it.send(it.tasks([second]), "c2")
                assert {done.outcome for done in early} == {"moved"}
                offered = asyncio.create_task(it.offer(it.tasks([second]), "c2"))

                async def c2_waits_for_the_lock() -> bool:
                    return len(await _all(it, keys.locks_of(name))) == 2

                await until(c2_waits_for_the_lock)
                assert name not in c2.partitions.owned
                gate.open.set()
                dones = await doing + await offered
                assert [done.outcome for done in dones] == ["done", "done"]
                assert dones[0].epoch < dones[1].epoch
                await store(it, first, second)
                assert not missing(it)
                it.check()


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_holder_that_stood_still_cannot_change_switches_any_more(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """It has decided, and its lease ends before it pushes; without the fence, harm is done."""
    if not fenced:
        monkeypatch.setattr(Fence, "stale", lambda *_: False)
    unaware = replace(OPTIONS, lease_s=600)  # it renews so rarely that it does not notice the end

    async with small(etcd_server) as it:
        await begin(it)
        async with it.configurator("c1", unaware) as c1:
            await it.ready("c1")
            async with it.configurator("c2", OPTIONS):
                first, second = it.subscribe("x < 50", "a"), it.subscribe("x < 50", "b")
                gate = Gate(c1)
                late = asyncio.create_task(it.send(it.tasks([first]), "c1"))
                await decided(gate)
                [lock] = await _all(it, keys.LOCKS)
                await it.etcd.revoke(lock.lease)
                [done] = await it.offer(it.tasks([second]), "c2")
                assert (done.outcome, done.epoch > lock.created) == ("done", True)
                await store(it, second)
                assert not missing(it)
                gate.open.set()
                assert {done.outcome for done in await late} == {"moved"}
                if not fenced:
                    assert missing(it)
                    return
                it.check()
                [done] = await it.offer(it.tasks([first]), "c2")
                assert done.outcome == "done"
                await store(it, first)
                it.check()


async def test_a_partition_left_in_order_is_continued_from_there(etcd_server: TestEtcd) -> None:
    """By a new configurator, and with a new southbound process."""

    async with small(etcd_server, partitions=4) as it:
        first = await it.openflow()
        async with it.configurator("c1", OPTIONS):
            await it.ready("c1")
            wanted = [it.subscribe(f"x < {n} and y > {n}") for n in range(10, 40)]
            await it.do(it.advertise("x < 100"), *wanted, id="c1")
            # Done, but not settled when c1 stops: only the log has it.
            unsettled = it.subscribe("x < 77 and y < 5", "a")
            await it.send(it.tasks([unsettled]), "c1")
        marks = {item.key.removeprefix(keys.CLEAN) for item in await _all(it, keys.CLEAN)}
        assert marks == set(it.space.partitions())
        assert not await _all(it, keys.LOCKS)
        async with it.southbound("sb2") as second:
            it.network.set_controllers([first, split_address(second.openflow)])
            async with it.configurator("c2", OPTIONS):
                await it.ready("c2")
                assert not await _all(it, keys.CLEAN)
                await store(it, unsettled)
                await it.do(it.subscribe("x < 60", "b"), id="c2")
                await it.do(*wanted[::2], gone=True, id="c2")
                it.check()


async def test_a_new_configurator_carries_out_an_update_that_was_not_begun(
    etcd_server: TestEtcd,
) -> None:
    """What was left in order has nothing of it, though the record has the new filter already."""

    async with small(etcd_server) as it:
        await begin(it)
        old = it.subscribe("x < 20", "a")
        await store(it, old)  # and no log names it
        async with it.configurator("c1", OPTIONS):
            await it.ready("c1")
        assert await _all(it, keys.CLEAN)
        new = it.again(replace(old, filter="x > 60"))
        under_way = replace(old, seq=new.seq, next=NextFilter(new.filter, new.regions))
        await it.etcd.put(keys.record_key(old.id), encode(under_way))
        async with it.configurator("c2", OPTIONS):
            await it.ready("c2")
            await it.offer(it.tasks([new]), "c2")
            await store(it, new)
            it.check()


async def _all(it: Cluster, prefix: str) -> list[Stored]:
    return (await it.etcd.range(prefix)).items


async def test_two_configurators_that_pass_a_lock_catch_up_with_each_other(
    etcd_server: TestEtcd,
) -> None:
    async with (
        small(etcd_server) as it,
        it.configurator("c1", OPTIONS),
        it.configurator("c2", OPTIONS),
    ):
        names = it.space.partitions()
        await it.until(
            lambda: (
                {p.partition for load in it.loads.values() for p in load.partitions} >= set(names)
            )
        )
        await begin(it)
        await it.offer(it.tasks(it.records.values()), "c1", "c2")
        epochs = set()
        for n in range(12):
            more = it.subscribe(f"x < {50 - n % 3}", "ab"[n % 2])
            [done] = await it.offer(it.tasks([more]), f"c{n % 2 + 1}")
            assert done.outcome == "done"
            epochs.add(done.epoch)
            await store(it, more)
            it.check()
        assert len(epochs) >= 10


def taken_up(it: Cluster, revision: int) -> bool:
    """Whether all partitions, and all configurators, have taken up a network."""
    names = {
        one.partition
        for load in it.loads.values()
        for one in load.partitions
        if load.network >= revision and one.state == "ready"
    }
    everybody = all(load.network >= revision for load in it.loads.values())
    return everybody and names == set(it.space.partitions())


async def test_owners_and_replicas_take_up_a_changed_network(etcd_server: TestEtcd) -> None:
    async with (
        small(etcd_server) as it,
        it.configurator("c1", OPTIONS),
        it.configurator("c2", OPTIONS),
    ):
        await begin(it)
        await it.offer(it.tasks(it.records.values()), "c1", "c2")
        for n, switch in enumerate(("s1", "s2", "s3", "s1")):
            it.doc = with_host(it.doc, Host("a", switch, 10 + n))
            revision = await it.etcd.put(keys.NETWORK, encode(it.doc))
            await it.until(partial(taken_up, it, revision))
            await it.until(lambda: it.held() == it.expected())
            for id in ("c1", "c2"):
                more = it.subscribe(f"x < {40 + n}", "a")
                [done] = await it.offer(it.tasks([more]), id)
                assert done.outcome == "done"
                await store(it, more)
                it.check()


async def test_a_configurator_that_missed_dropped_log_entries_rebuilds_the_partition(
    etcd_server: TestEtcd,
) -> None:
    """A configurator that was away for long starts over, with operations in progress, too."""
    options = replace(OPTIONS, log=LogOptions(kept=2, dropped_at_once=3))
    async with small(etcd_server) as it:
        [name] = it.space.partitions()
        async with (
            it.configurator("c1", options),
            it.configurator("c2", options),
        ):
            await begin(it)
            await it.offer(it.tasks(it.records.values()), "c1", "c2")
            still_open = it.subscribe("x < 33", "b")
            await it.etcd.put(
                keys.record_key(still_open.id), encode(replace(still_open, state="pending"))
            )
            await it.offer(it.tasks([still_open]), "c1", "c2")
            for n in range(24):
                more = it.subscribe(f"x < {50 - n}", "a")
                # c2 is away from the third to the twentieth.
                await it.offer(it.tasks([more]), "c1" if 2 < n < 20 else f"c{n % 2 + 1}")
                await store(it, more)
            entries = len(await _all(it, keys.journal_of(name)))
            assert entries < 15
            assert await it.etcd.get(keys.CUTS + name)
        async with it.configurator("c3", options):
            await it.ready("c3")
            await store(it, still_open)
            it.check()
            await it.do(it.subscribe("x < 5", "h3"), id="c3")
            await it.do(still_open, gone=True, id="c3")
            it.check()


async def test_a_partition_that_is_lost_again_while_it_is_left_is_locked_again(
    etcd_server: TestEtcd,
) -> None:
    made: list[LockedOwnership] = []

    def keep(context: OwnershipContext) -> LockedOwnership:
        made.append(LockedOwnership(context, OPTIONS.for_locked()))
        return made[-1]

    async with small(etcd_server) as it:
        await begin(it)
        async with it.configurator("c1", OPTIONS, ownership=keep) as c1:
            await it.ready("c1")
            [(name, former)] = c1.partitions.owned.items()
            made[0].lose(name, "the map has changed")
            await asyncio.sleep(0)  # its work is being stopped now
            made[0].lose(name, "the map has changed again")

            def owned_again() -> bool:
                worker = c1.partitions.owned.get(name)
                return worker is not None and worker is not former and worker.ready

            await until(owned_again)
            more = it.subscribe("x < 50", "a")
            assert {done.outcome for done in await it.offer(it.tasks([more]), "c1")} == {"done"}


async def _lose_lock_during_a_removal(it: Cluster, gone: Record) -> None:
    """s1 has carried out the removal, s3 has not; both are away, and the owner c1 is fenced."""
    removing = replace(gone, state="removing", seq=gone.seq + 1, acknowledged=0.0)
    await store(it, removing)
    it.network.agents["s3"].drop()
    it.streams["c1"].tell(Offers(dict.fromkeys(it.space.partitions(), 1)))
    it.offered |= it.tasks([gone], gone=True)
    await it.until(lambda: bool(it.waiting))
    it.network.agents["s1"].drop()
    [lock] = await _all(it, keys.LOCKS)
    await it.etcd.revoke(lock.lease)


async def _done_only_when_back(it: Cluster, covered: Record, *away: str) -> None:
    """A request that needs no new entries is done when switches are back, not before."""
    tasks = it.tasks([covered])
    offering = asyncio.create_task(it.offer(tasks, "c2"))
    await it.until(lambda: offering.done() or away[0] in _reason(it, "c2"))
    assert not offering.done()
    assert not any(done.outcome == "done" for done in it.dones.values() if done.id == covered.id)
    for switch in away:
        it.network.agents[switch].come_back()
    async with asyncio.timeout(WAIT):
        assert {done.outcome for done in await offering} == {"done"}
    await store(it, covered)
    assert not missing(it)


def _reason(it: Cluster, id: str) -> str:
    return next((p.reason or "" for p in it.loads[id].partitions), "") if id in it.loads else ""


@pytest.mark.parametrize("replica", [True, False], ids=["with a replica", "without"])
async def test_after_a_removal_that_was_cut_short_nothing_is_done_that_a_switch_may_lack(
    etcd_server: TestEtcd, replica: bool
) -> None:
    """The next owner begins with the request that was being removed: it covers the new one."""
    async with small(etcd_server) as it, AsyncExitStack() as stack:
        offered, wide = it.advertise("x < 100"), it.subscribe("x < 50", "h3")
        if replica:
            await stack.enter_async_context(it.configurator("c2", OPTIONS))
            await it.ready("c2")
            await it.offer(it.tasks([offered]), "c2")
        async with it.configurator("c1", OPTIONS):
            await it.offer(it.tasks([offered, wide]), "c1")
            await store(it, offered, wide)
            it.check()
            if not replica:
                await stack.enter_async_context(it.configurator("c2", OPTIONS))
            await _lose_lock_during_a_removal(it, wide)
            await _done_only_when_back(it, it.subscribe("x < 20", "h3"), "s1", "s3")


async def test_a_network_that_no_owner_has_pushed_is_on_the_switches_before_anything_is_done(
    etcd_server: TestEtcd,
) -> None:
    """A new owner has the newest network at once; its predecessor left the entries of another."""
    async with small(etcd_server) as it:
        await begin(it)
        async with it.configurator("c1", OPTIONS):
            await it.ready("c1")
        assert await _all(it, keys.CLEAN)
        it.doc = with_host(it.doc, Host("h3", "s2", 9))  # s1 had no entries towards s2's hosts
        await it.etcd.put(keys.NETWORK, encode(it.doc))
        it.network.agents["s2"].drop()
        async with it.configurator("c2", OPTIONS):
            await _done_only_when_back(it, it.subscribe("x < 20", "h3"), "s2")
