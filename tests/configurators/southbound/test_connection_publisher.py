"""What a southbound process publishes about the connections of switches."""

import asyncio
from itertools import count

from configurators.environment import Clock
from configurators.southbound.connection_publisher import ConnectionPublisher
from configurators.store.documents import decode_connections
from configurators.store.etcd.client import Etcd
from configurators.store.keys import CONNECTIONS, SOUTHBOUND
from configurators.store.mirror import Mirror
from configurators.store.model import Connections, Process
from configurators.store.registration import Registration
from tests.etcd import TestEtcd
from tests.support import until


async def test_a_connection_is_published_that_begins_to_count_while_it_is_looked_at(
    etcd_server: TestEtcd,
) -> None:
    # The connection counts after 2 s, between the second and the third reading of this clock.
    readings = count(0.0, 1.5)
    clock = Clock(monotonic=lambda: next(readings))
    async with Etcd(etcd_server.access()) as etcd:
        registration = Registration(etcd, SOUTHBOUND + "b1", Process("b1", "host:1", 1, "here"))
        publisher = ConnectionPublisher(etcd, "b1", lambda: {"s1"}, set, clock, 2.0, 60.0)
        published = Mirror(etcd, CONNECTIONS, decode_connections, lambda *_: None)
        await published.start()
        running = asyncio.gather(registration.keep(), publisher.run(registration))
        try:
            await until(lambda: published.values.get("b1") == Connections(("s1",)))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await published.stop()
