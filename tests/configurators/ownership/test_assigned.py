"""Configurators to which partitions are assigned (mode `sna`): when they begin with one."""

import asyncio
from typing import Literal

from msgspec.structs import replace

from configurators.state.network import with_host
from configurators.store import keys
from configurators.store.documents import encode
from configurators.store.etcd.client import Put
from configurators.store.model import Move
from sdn.network.topology import Host
from tests.configurators.cluster import Cluster, cluster
from tests.etcd import TestEtcd
from tests.support import WAIT


async def test_a_copy_that_knows_a_newer_network_works_when_switches_have_its_entries(
    etcd_server: TestEtcd,
) -> None:
    """The source has stopped before it pushed that network, and one switch is away."""
    async with (
        cluster(etcd_server.access(), partitions=1) as it,
        it.configurator("c1"),
        it.configurator("c2"),
    ):
        await it.ready("c1")
        [name] = it.space.partitions()
        await it.do(it.advertise("x < 100"), it.subscribe("x < 50", "h3"))
        epoch = it.loads["c1"].partitions[0].epoch
        move = Move("m1", "c1", epoch, "c2", "copying", "for a test", 0.0)
        await _copied(it, name, move, "following")
        move = replace(move, phase="handing over")
        await _copied(it, name, move, "ended")
        it.doc = with_host(it.doc, Host("h3", "s2", 9))
        revision = await it.etcd.put(keys.NETWORK, encode(it.doc))
        await it.until(lambda: it.loads["c2"].network >= revision)
        it.network.agents["s2"].drop()
        moved = Put(keys.move_key(name), encode(replace(move, phase="moved")))
        await it.etcd.transact([], [moved, Put(keys.owner_key(name), b"c2")])
        await it.until(lambda: bool(it.loads["c2"].partitions))
        covered = it.subscribe("x < 20", "h3")
        doing = asyncio.create_task(it.do(covered, id="c2"))
        await it.until(lambda: doing.done() or "s2" in (it.loads["c2"].partitions[0].reason or ""))
        assert not doing.done()
        assert it.held() != it.expected()
        it.network.agents["s2"].come_back()
        async with asyncio.timeout(WAIT):
            assert {done.outcome for done in await doing} == {"done"}
        it.check()
        await it.ready("c2")


async def test_a_partition_waits_only_for_switches_that_have_its_entries(
    etcd_server: TestEtcd,
) -> None:
    """Requests in progress concern two partitions; one of them has nothing on the lost switch."""
    near = Host("near", "s1", 9)
    low, high = "x < 50 and y < 50", "x >= 200 and y >= 200"
    async with cluster(etcd_server.access(), partitions=3, hosts=[near]) as it:
        async with it.configurator():
            await it.ready()
            await it.do(it.advertise(low), it.subscribe(low, "h3"))
            await it.do(it.advertise(high), it.subscribe(high, "near"))
        for record in it.records.values():
            removing = replace(record, state="removing", seq=record.seq + 1, acknowledged=0.0)
            await it.etcd.put(keys.record_key(record.id), encode(removing))
        it.network.agents["s3"].drop()
        async with it.configurator():
            await it.until(lambda: _waits_for(it, "s3"))
            covered = it.subscribe("x > 220 and y > 220", "near")
            async with asyncio.timeout(WAIT):
                assert {done.outcome for done in await it.do(covered)} == {"done"}
            assert _waits_for(it, "s3")
            it.network.agents["s3"].come_back()
            await it.ready()


def _waits_for(it: Cluster, switch: str) -> bool:
    """Whether a partition of c1 waits for a switch."""
    load = it.loads.get("c1")
    return load is not None and any(switch in (one.reason or "") for one in load.partitions)


async def _copied(it: Cluster, name: str, move: Move, state: Literal["following", "ended"]) -> None:
    """Store a move, and wait until its copy has come so far."""
    await it.etcd.put(keys.move_key(name), encode(move))
    await it.until(
        lambda: any(
            (copy.move, copy.state) == (move.id, state)
            for copy in (it.loads["c2"].copies if "c2" in it.loads else ())
        )
    )
