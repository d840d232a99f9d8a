"""Which switches a southbound process claims, by the registrations that it sees."""

import asyncio

from configurators.environment import Clock
from configurators.southbound.connection_publisher import ConnectionPublisher
from configurators.southbound.reporter import Reporter
from configurators.southbound.request_handler import RequestHandler
from configurators.southbound.responsibility import Responsibility
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import GENERATION, SOUTHBOUND
from configurators.store.model import Process
from configurators.store.registration import Registration
from sdn.network.topologies import topology
from sdn.openflow.driver import OpenFlowDriver
from sdn.tables.pipeline import Pipeline
from tests.etcd import TestEtcd
from tests.support import until

LINE = topology("line:3")
SWITCHES = frozenset(switch.id for switch in LINE.switches)


async def test_a_process_claims_nothing_while_another_one_has_its_id(
    etcd_server: TestEtcd,
) -> None:
    pipeline = Pipeline().extended(LINE)
    async with Etcd(etcd_server.access()) as etcd:
        driver = OpenFlowDriver(LINE, pipeline, lambda _: None, {})
        handler = RequestHandler(driver)
        reporter = Reporter("b1", driver, 1, 1)
        ours = Process("b1", "host:1", 1, "here")
        registration = Registration(etcd, SOUTHBOUND + "b1", ours)
        publisher = ConnectionPublisher(
            etcd, "b1", driver.attached, lambda: handler.switches, Clock(), 2.0, 60.0
        )
        responsibility = Responsibility(etcd, "b1", handler, reporter, publisher, SWITCHES)
        await etcd.put(SOUTHBOUND + "b1", encode(Process("b1", "host:2", 2, "there")))
        await etcd.put(SOUTHBOUND + "b2", encode(Process("b2", "host:3", 3, "there")))
        running = asyncio.create_task(responsibility.run(registration))
        try:
            # The other process goes, and this one is registered: only then it claims its share.
            await etcd.delete(SOUTHBOUND + "b2")
            registered = await etcd.put(SOUTHBOUND + "b1", encode(ours))
            await until(lambda: handler.switches == SWITCHES)
            claim = await etcd.get(GENERATION)
            assert claim
            assert claim.revision > registered
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
