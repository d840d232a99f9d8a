"""How processes make themselves known, and how others learn that they are not any more."""

import asyncio

from configurators.registration import Registration, bury
from configurators.store.client import Etcd
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process
from tests.etcd import TestEtcd

WAIT = 30.0


def test_one_that_has_died_is_taken_out_before_its_lease_is_over(etcd_server: TestEtcd) -> None:
    async def check() -> None:
        async with Etcd(etcd_server.access()) as etcd, asyncio.timeout(WAIT):
            known = [
                Registration(etcd, DISPATCHERS + name, Process(name, "", pid, node), 60)
                for name, pid, node in (("d1", 1, "n1"), ("d2", 2, "n1"), ("d3", 1, "n2"))
            ]
            keeping = [asyncio.create_task(one.keep()) for one in known]
            for one in known:
                await one.known.wait()
            await bury(etcd, DISPATCHERS, "n1", 1)
            left = [item.key for item in (await etcd.range(DISPATCHERS)).items]
            assert left == [DISPATCHERS + "d2", DISPATCHERS + "d3"]
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)

    asyncio.run(check())
