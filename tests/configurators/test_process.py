"""The process of a configurator, with a real etcd, southbound processes and emulated switches."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from configurators.engine.engine import Ordering
from configurators.ownership.ownership import Mode
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.state.network import with_host, without_host
from configurators.state.spaces import LoadedSpace, new_version, with_current, without_version
from configurators.store import keys
from configurators.store.documents import decode_process, encode
from configurators.store.model import NextFilter, Record
from configurators.store.registration import Superseded
from configurators.streams.addresses import split_address
from configurators.streams.listener import connect
from configurators.streams.messages import Applied, Apply, FromSouthbound
from configurators.streams.packing import pack_ops
from sdn.emulator.model import SOFTWARE
from sdn.network.topology import Host
from sdn.tables.flows import Change, FlowEntry, FlowOp
from sdn.tables.pipeline import PlanName
from tests.configurators.cluster import SCHEMA, TOKEN, Cluster, cluster
from tests.etcd import TestEtcd, running
from tests.support import WAIT


@pytest.mark.parametrize(
    ("plan", "ordering"), [("legs", "net"), ("legs", "fifo"), ("lpm", "ordered"), ("lpm", "net")]
)
async def test_tasks_become_entries_and_their_removal_deletes_them(
    etcd_server: TestEtcd, plan: PlanName, ordering: Ordering
) -> None:
    options = ConfiguratorOptions(ordering, slice_limit=20, tune_gc=False)
    async with (
        cluster(etcd_server.access(), plan=plan, partitions=4) as it,
        it.configurator(options=options),
    ):
        await it.ready()
        offered = it.advertise("x < 100")
        wanted = [it.subscribe(f"x < {n} and y > {n}") for n in range(10, 60)]
        dones = await it.do(offered, *wanted)
        assert {done.outcome for done in dones} == {"done"}
        assert len({done.partition for done in dones}) > 1
        assert any(it.held().values())
        it.check()
        await it.do(*wanted[::2], gone=True)
        it.check()
        await it.do(offered, *wanted[1::2], gone=True)
        assert not any(it.held().values())


async def test_only_requests_that_do_not_fit_into_a_table_fail(etcd_server: TestEtcd) -> None:
    async with cluster(etcd_server.access(), partitions=1) as it, it.configurator():
        await it.ready()
        await it.do(it.advertise("x >= 0"))
        switch = it.network.switches["s2"]
        switch.model = replace(SOFTWARE, table_capacity=41)  # one of them is for a miss
        wanted = [it.subscribe(f"x == {n}") for n in range(100)]
        dones = await it.do(*wanted)
        outcomes = [done.outcome for done in dones]
        assert (outcomes.count("done"), outcomes.count("failed")) == (40, 60)
        it.check()
        switch.model = SOFTWARE
        assert {done.outcome for done in await it.do(*wanted)} == {"done"}
        it.check()


async def test_a_task_waits_for_a_disconnected_switch_and_says_so(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access(), partitions=1) as it, it.configurator():
        await it.ready()
        await it.do(it.advertise("x >= 0"))
        assert it.loads["c1"].memory > 1 << 20
        assert it.loads["c1"].cpu_s > 0
        it.waiting.clear()  # on a busy machine, the first task may have waited, too
        it.network.agents["s3"].drop()
        far = it.subscribe("x < 10", host="h3")
        doing = asyncio.create_task(it.do(far))
        await it.until(lambda: bool(it.waiting))
        assert "s3" in it.waiting[0].reason
        assert it.waiting[0].tasks == [(far.id, 4)]
        await it.until(lambda: it.loads["c1"].partitions[0].state == "waiting")
        it.network.agents["s3"].come_back()
        async with asyncio.timeout(WAIT):
            assert {done.outcome for done in await doing} == {"done"}
        it.check()
        await it.until(lambda: it.loads["c1"].partitions[0].state == "ready")


async def test_after_a_restart_switches_are_reconciled_and_the_old_epoch_is_over(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access()) as it:
        async with it.configurator():
            await it.ready()
            wanted = [it.subscribe(f"x < {n} and y > {n}") for n in range(10, 40)]
            dones = await it.do(it.advertise("x < 100"), *wanted)
            old = {done.partition: done.epoch for done in dones}
        # Meanwhile one entry is lost, and one more is there than should be.
        lost = next(iter(it.held()["s1"]))
        it.network.switches["s1"].change(FlowOp(Change.DELETE, lost))
        gone = it.records.pop(wanted[-1].id)
        await it.etcd.delete(keys.record_key(gone.id))
        async with it.configurator():
            await it.ready()
            it.check()
            dones = await it.do(it.subscribe("x < 77"))
            assert all(done.epoch > old[done.partition] for done in dones)
            it.check()
            answer = await _apply(it, dones[0].partition, old[dones[0].partition], lost)
            assert "is over" in (answer.stale or "")


async def _apply(it: Cluster, partition: str, epoch: int, entry: FlowEntry) -> Applied:
    """Have an entry deleted, as a configurator would."""
    stored = await it.etcd.get(keys.SOUTHBOUND + "sb1")
    assert stored
    address = decode_process(stored.value).address
    stream = await connect(address, TOKEN, lambda *_: None, FromSouthbound, "late")
    batch = {"s1": pack_ops([FlowOp(Change.DELETE, entry)])}
    try:
        answer = await stream.ask(Apply(partition, epoch, batch), WAIT)
    finally:
        stream.close()
        await stream.closed.wait()
    assert isinstance(answer, Applied)
    return answer


async def test_after_a_restart_nothing_counts_as_done_that_a_switch_may_lack(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access(), partitions=1) as it:
        async with it.configurator():
            await it.ready()
            changed = it.subscribe("x < 10")
            await it.do(it.advertise("x >= 0"), changed)
        # Meanwhile an update has begun, and no switch knows of it.
        target = it.subscribe("x < 10 or x >= 200")
        changed = replace(
            changed, seq=changed.seq + 1, next=NextFilter(target.filter, target.regions)
        )
        it.records[changed.id] = changed
        await it.etcd.put(keys.record_key(changed.id), encode(changed))
        it.network.agents["s3"].drop()
        async with it.configurator():
            await it.until(lambda: "c1" in it.loads and bool(it.loads["c1"].partitions))
            covered = it.subscribe("x > 220")
            tasks = it.tasks([replace(changed, regions=target.regions), covered])
            sending = asyncio.create_task(it.send(tasks))
            await it.until(lambda: "s3" in (it.loads["c1"].partitions[0].reason or ""))
            assert not sending.done()
            it.network.agents["s3"].come_back()
            async with asyncio.timeout(WAIT):
                assert {done.outcome for done in await sending} == {"done"}
            it.records[covered.id] = covered
            it.check()
            await it.ready()


async def test_the_later_of_two_processes_with_one_id_supersedes_the_other(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access()) as it:
        first = ConfiguratorProcess(it.access, TOKEN, "c1")
        working = asyncio.create_task(first.run(asyncio.Event()))
        async with it.stream("c1", first):
            await it.ready()
        async with it.configurator():
            await it.ready()
            with pytest.raises(Superseded):
                await asyncio.wait_for(working, WAIT)
            dones = await it.do(it.advertise("x < 100"), it.subscribe("x < 20"))
            assert {done.outcome for done in dones} == {"done"}
            it.check()


async def test_tasks_that_come_again_late_or_old_do_no_harm(etcd_server: TestEtcd) -> None:
    async with cluster(etcd_server.access()) as it, it.configurator():
        await it.ready()
        offered, wanted = it.advertise("x < 100"), it.subscribe("x < 50")
        await it.do(offered, wanted)
        again = await it.send(it.tasks([wanted]))
        assert {done.outcome for done in again} == {"done"}
        it.check()
        newer = replace(it.subscribe("x > 60"), id=wanted.id, seq=2)
        await it.do(newer)
        late = await it.send(it.tasks([wanted]))
        # Where the newer filter has nothing, nothing is known of it either.
        known = it.tasks([newer])
        assert {d.outcome for d in late if d.partition in known} == {"superseded"}


@pytest.mark.parametrize("mode", ["sna", "sea"])
async def test_requests_without_a_record_are_removed_when_their_dispatcher_is_gone(
    etcd_server: TestEtcd, mode: Mode
) -> None:
    async with cluster(etcd_server.access(), mode=mode) as it, it.configurator():
        await it.ready()
        offered, wanted, ended = (
            it.advertise("x < 99"),
            it.subscribe("x < 9"),
            it.subscribe("x < 90"),
        )
        for record in (offered, wanted):
            await it.etcd.put(keys.record_key(record.id), encode(record))
            it.records[record.id] = record
        tasks = it.tasks([offered, wanted, ended])  # the last of which is not stored any more
        dones = await (it.offer(tasks, "c1") if mode == "sea" else it.send(tasks))
        assert {done.outcome for done in dones} == {"done"}
        assert it.held() != it.expected()
        it.streams["c1"].close("the dispatcher is gone")
        await it.until_as_expected()


async def test_hosts_that_come_move_and_go_are_rewired(etcd_server: TestEtcd) -> None:
    async with cluster(etcd_server.access()) as it, it.configurator():
        await it.ready()
        await it.do(it.advertise("x < 100"), it.subscribe("x < 50"))
        early = await it.send(it.tasks([it.subscribe("x < 20", host="new")]))
        assert {done.outcome for done in early} == {"failed"}
        it.doc = with_host(it.doc, Host("new", "s2", 9))
        await _store_network(it)
        dones = await it.do(it.subscribe("x < 20", host="new"))
        assert {done.outcome for done in dones} == {"done"}
        it.check()
        it.doc = with_host(it.doc, Host("h3", "s1", 9))
        await _store_network(it)
        it.check()
        it.doc = without_host(it.doc, "new")
        await _store_network(it)
        it.check()


async def _store_network(it: Cluster) -> None:
    revision = await it.etcd.put(keys.NETWORK, encode(it.doc))
    await it.until(lambda: it.loads["c1"].network >= revision)


async def test_a_partition_that_moves_is_built_again_by_its_new_owner(
    etcd_server: TestEtcd,
) -> None:
    async with (
        cluster(etcd_server.access()) as it,
        it.configurator("c1"),
        it.configurator("c2"),
    ):
        await it.ready("c1")
        await it.do(it.advertise("x < 100"), *(it.subscribe(f"x < {n}") for n in range(9, 19)))
        await it.own("c2")
        await it.ready("c2")
        it.check()
        more = it.subscribe("x < 77")
        assert {d.outcome for d in await it.send(it.tasks([more]), "c1")} == {"moved"}
        assert {d.outcome for d in await it.do(more, id="c2")} == {"done"}
        it.check()


async def test_a_new_version_is_added_and_an_old_one_goes_with_its_entries(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access()) as it, it.configurator():
        await it.ready()
        await it.do(it.advertise("x < 100"), it.subscribe("x < 50"))
        schema = {"attributes": [*SCHEMA["attributes"], {"name": "z", "type": "bool"}]}
        both = new_version(it.space.doc, schema, 3)
        it.space = LoadedSpace.of(both)
        await it.own(names=it.space.versions[1].partitions())
        await it.etcd.put(keys.SPACES + both.name, encode(both))
        await it.ready()
        old = list(it.records.values())
        it.records.clear()
        await it.do(*(it.again(record) for record in old))
        it.check()
        after = without_version(with_current(both, 1), 0)
        it.space = LoadedSpace.of(after)
        await it.etcd.put(keys.SPACES + after.name, encode(after))
        await it.etcd.delete(keys.OWNERS + "5.0/", prefix=True)
        await it.until(
            lambda: {p.partition for p in it.loads["c1"].partitions} == set(it.space.partitions())
        )
        await it.until_as_expected()


async def test_tasks_for_partitions_of_other_configurators_are_sent_back(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access()) as it, it.configurator("c2"):
        dones = await it.send(it.tasks([it.subscribe("x < 50")]), "c2")
        assert {(done.outcome, done.epoch) for done in dones} == {("moved", 0)}


async def test_switches_change_over_to_another_southbound_process(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access(), "ring:6") as it, it.configurator():
        await it.ready()
        first = await it.openflow()
        await it.do(it.advertise("x < 100"), *(it.subscribe(f"x < {n}") for n in range(9, 19)))
        async with it.southbound("sb2") as second:
            it.network.set_controllers([first, split_address(second.openflow)])
            await it.do(*(it.subscribe(f"x < {n}") for n in range(30, 50)))
            it.check()
        await it.do(*(it.subscribe(f"x < {n}") for n in range(50, 70)))
        it.check()


async def test_work_goes_on_while_etcd_is_unavailable(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with cluster(server.access("test/", 30.0)) as it:
            options = ConfiguratorOptions(tune_gc=False, lease_s=2, load_every_s=0.2)
            async with it.configurator(options=options):
                await it.ready()
                await it.do(it.advertise("x < 100"))
                await asyncio.to_thread(server.stop)
                wanted = it.subscribe("x < 50")
                dones = await it.send(it.tasks([wanted]))
                assert {done.outcome for done in dones} == {"done"}
                await asyncio.to_thread(server.start)
                await it.registered("c1")
                assert {d.outcome for d in await it.do(wanted)} == {"done"}
                it.check()


# Python 3.11 complains of a connection that comes in at the moment when a server stops.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("plan", "seed"), [("legs", 1), ("legs", 2), ("lpm", 3)])
async def test_after_any_faults_of_processes_and_switches_the_switches_hold_what_they_should(
    etcd_server: TestEtcd, plan: PlanName, seed: int
) -> None:
    random = Random(seed)
    async with (
        cluster(etcd_server.access(), "ring:4", plan, trees=2) as it,
        AsyncExitStack() as stack,
    ):
        first = await it.openflow()
        await stack.enter_async_context(it.configurator())
        await it.ready()
        await it.do(*(it.advertise(f"x < {n * 60}", f"h{n}") for n in (1, 2, 3)))
        joining = await stack.enter_async_context(AsyncExitStack())
        joined = False
        doing: set[asyncio.Task[Any]] = set()
        for _ in range(60):
            known = list(it.records.values())
            match random.randrange(8):
                case 0:
                    it.network.agents[f"s{random.randint(1, 4)}"].drop(random.random() / 5)
                case 1:
                    it.network.agents[f"s{random.randint(1, 4)}"].restart(seconds=0.05)
                case 2 if not joined:
                    second = await joining.enter_async_context(it.southbound("sb2"))
                    it.network.set_controllers([first, split_address(second.openflow)])
                    joined = True
                case 3 if joined:
                    await joining.aclose()
                    joined = False
            new = [_some(it, random) for _ in range(random.randint(1, 10))]
            doing.add(asyncio.create_task(it.do(*new)))
            old = [r for r in random.sample(known, len(known) // 3) if r.kind == "subscription"]
            if old:
                doing.add(asyncio.create_task(it.do(*old, gone=True)))
            if len(doing) > 4:
                done, doing = await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    assert {d.outcome for d in one.result()} == {"done"}
        for dones in await asyncio.gather(*doing):
            assert {d.outcome for d in dones} == {"done"}
        await it.until_as_expected()  # a switch may be about to come back


def _some(it: Cluster, random: Random) -> Record:
    wanted = f"x < {random.randrange(1, 255)} and y > {random.randrange(255)}"
    return it.subscribe(wanted, f"h{random.randint(1, 4)}")
