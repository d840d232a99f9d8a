"""A peer that claims the datapath id of a connected switch, against the whole control plane."""

import asyncio
from random import Random

from configurators.store.documents import decode_process
from configurators.store.keys import SOUTHBOUND
from configurators.streams.addresses import split_address
from dispatcher.calls import RecordSpec
from sdn.openflow.protocol.constants import Type
from tests.dispatcher.support import SCHEMA, TIMEOUT, random_filter, views
from tests.dispatcher.whole import whole
from tests.etcd import TestEtcd
from tests.sdn.southbound.raw_peer import claim


async def test_what_is_answered_as_active_is_on_the_switch_and_not_at_an_impostor(
    etcd_server: TestEtcd,
) -> None:
    rng = Random(1)
    async with whole(etcd_server.access()) as w, w.dispatcher() as d:
        stored = await w.etcd.get(SOUTHBOUND + "sb1")
        assert stored
        _, port = split_address(decode_process(stored.value).openflow)
        received: list[int] = []

        async def pretend() -> None:
            while True:
                received.extend(await claim(port, 2))

        impostor = asyncio.create_task(pretend())
        try:
            await d.put_space("stocks", SCHEMA)
            views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
            for _ in range(20):
                wants = [RecordSpec("h3", "stocks", random_filter(rng)) for _ in range(3)]
                made = views(await d.begin("subscription", wants, wait=TIMEOUT))
                assert {record.state for record in made} == {"active"}
        finally:
            impostor.cancel()
            await asyncio.gather(impostor, return_exceptions=True)
        assert Type.HELLO in received
        assert Type.FLOW_MOD not in received
        assert await w.check_flows(d) > 60
