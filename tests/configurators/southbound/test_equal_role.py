"""Southbound processes with the role `equal`, which switches do not fence from each other."""

import asyncio

from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import wanted_key
from configurators.store.model import Wanted
from configurators.streams.messages import Apply
from sdn.emulator import EmulatedNetwork
from sdn.outcomes import Acknowledged
from tests.configurators.southbound.support import (
    LINE,
    NAMES,
    PARTITION,
    adds,
    child,
    client,
    controllers,
    entry,
    on_switch,
    process,
    store,
)
from tests.etcd import TestEtcd


async def test_one_process_alone_has_all_switches_and_another_takes_its_place(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access, "b2", role="equal") as two,
        EmulatedNetwork(LINE) as network,
        client(two.listen) as d,
    ):
        async with child(access, "b1", role="equal") as one, client(one.listen) as c:
            network.set_controllers(controllers(one, two))
            await c.holding(*NAMES)
            await d.holding()
            await c.declare(epoch)
            applied = await c.apply({"s1": adds(1)}, epoch)
            assert applied.outcomes == {"s1": Acknowledged()}
            refused = await d.apply({"s2": adds(2)}, epoch)
            assert refused.outcomes["s2"] != Acknowledged()
            await one.kill()
            await d.holding(*NAMES)
        await d.declare(epoch, {"s1": [entry(1)]})
        applied = await d.apply({"s2": adds(2)}, epoch)
        assert applied.outcomes == {"s2": Acknowledged()}
        assert await on_switch(d, "s1") == {entry(1)}


async def test_a_process_that_wakes_up_after_its_lease_has_ended_sends_nothing(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        Etcd(access) as etcd,
        process(access, "b2", role="equal") as two,
        EmulatedNetwork(LINE) as network,
        client(two.listen) as d,
        child(access, "b1", role="equal") as one,
        client(one.listen) as c,
    ):
        await etcd.put(wanted_key("southbound"), encode(Wanted(2)))
        network.set_controllers(controllers(one, two))
        await c.holding(*NAMES)
        await c.declare(epoch)
        one.pause()
        # It finds these when it wakes up, before it hears from etcd.
        asked = [
            asyncio.create_task(c.stream.ask(Apply(PARTITION, epoch, {"s1": adds(n)}), 60.0))
            for n in range(1, 20)
        ]
        await d.holding(*NAMES)
        await d.declare(epoch)
        before = network.switches["s1"].counters.flow_mods
        one.wake_up()
        answers = await asyncio.gather(*asked)
        assert not any(Acknowledged() in answer.outcomes.values() for answer in answers)
        assert network.switches["s1"].counters.flow_mods == before
        assert await on_switch(d, "s1") == set()
