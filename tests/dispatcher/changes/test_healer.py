"""Who decides about a network in which something fails, and what becomes of requests meanwhile."""

from contextlib import AsyncExitStack

from configurators.store.documents import decode_network
from configurators.store.keys import NETWORK
from dispatcher.calls import RecordSpec
from dispatcher.changes.damping import Patience
from tests.dispatcher.support import SCHEMA, TIMEOUT
from tests.dispatcher.whole import Whole, uncounted, whole
from tests.etcd import TestEtcd
from tests.support import until

SOON = Patience(down_after=0.3, absent_after=20.0, back_after=0.3)


async def lost(w: Whole) -> tuple[str, ...]:
    stored = await w.etcd.get(NETWORK)
    assert stored
    return decode_network(stored.value).lost.switches


async def test_one_dispatcher_decides_and_when_it_is_gone_another(etcd_server: TestEtcd) -> None:
    async with AsyncExitStack() as stack:
        w = await stack.enter_async_context(whole(etcd_server.access(), "ring:4"))
        second = await stack.enter_async_context(w.dispatcher(id="b", patience=SOON, grace=0.2))
        await second.put_space("stocks", SCHEMA)
        [made] = await second.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT)
        assert made.status == 201
        # The first never takes anything for lost: as long as it decides, nothing is.
        calm = Patience(down_after=3600.0)
        async with w.dispatcher(id="a", patience=calm):
            await until(lambda: len(second.health().dispatchers) == 2)
            w.network.agents["s3"].drop()

            async def noticed() -> bool:
                return any(s.state == "down" for s in second.status.switches())

            await until(noticed)
            [waits] = await second.begin("subscription", [RecordSpec("h3", "stocks", {})], wait=1.0)
            assert waits.status == 202
            assert await lost(w) == ()

        async def decided() -> bool:
            return await lost(w) == ("s3",)

        await until(decided)
        # Its own host still waits, another one behind it does not.
        [served] = await second.begin(
            "subscription", [RecordSpec("h2", "stocks", {})], wait=TIMEOUT
        )
        assert served.status == 201
        assert waits.record
        id = waits.record.id

        async def told() -> bool:
            return "s3, which is lost" in ((await second.record(id)).reason or "")

        await until(told)
        assert (await second.record(id)).state == "pending"
        w.network.agents["s3"].come_back()

        async def active() -> bool:
            return (await second.record(id)).state == "active"

        await until(active)
        assert await lost(w) == ()

        async def settled() -> bool:
            d = second
            held = [
                uncounted(await d.flows(s.id, "dp")) == await d.flows(s.id, "cp")
                for s in d.status.switches()
            ]
            return len(d.status.topology().trees) == 1 and all(held)

        await until(settled)
