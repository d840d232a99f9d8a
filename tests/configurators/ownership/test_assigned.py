"""Configurators to which partitions are assigned (mode `sna`): what they do when one has moved."""

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


async def _copied(it: Cluster, name: str, move: Move, state: Literal["following", "ended"]) -> None:
    """Store a move, and wait until its copy has come so far."""
    await it.etcd.put(keys.move_key(name), encode(move))
    await it.until(
        lambda: any(
            (copy.move, copy.state) == (move.id, state)
            for copy in (it.loads["c2"].copies if "c2" in it.loads else ())
        )
    )
