"""The parts of the service work as the settings say."""

import asyncio

from api.start.parts.network import lab_service
from api.start.parts.southbound import make_southbound
from api.start.settings.sources import load
from configurators.state.network import first_network
from configurators.store import keys
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.streams.addresses import split_address
from sdn.network.topologies import topology
from tests.etcd import TestEtcd

DEFAULT_TIMEOUT = load(None, {}, {}).switches.timeout


async def test_a_southbound_process_closes_a_silent_connection_after_its_timeout(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    etcd_settings = {"endpoints": access.endpoints, "prefix": access.prefix}
    options = {"stream_token": "t" * 16, "etcd": etcd_settings, "switches": {"timeout": 0.1}}
    async with Etcd(access) as etcd:
        doc = first_network(topology("line:3"), "legs", 1)
        await etcd.put(keys.NETWORK, encode(doc))
    process = make_southbound(load(None, options, {}), "s", "n", "127.0.0.1:0", "127.0.0.1:0")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(process.run(stop))
        await process.ready.wait()
        reader, writer = await asyncio.open_connection(*split_address(process.openflow))
        async with asyncio.timeout(DEFAULT_TIMEOUT - 1):
            await reader.read()  # until the process closes the connection
        writer.close()
        await writer.wait_closed()
        stop.set()


def test_only_processes_of_one_service_find_its_lab() -> None:
    def name(*endpoints: str, data_plane: str = "ovs", prefix: str = "one") -> str:
        etcd = {"endpoints": endpoints, "prefix": prefix}
        return lab_service(load(None, {"data_plane": data_plane, "etcd": etcd}, {}))

    first = name("127.0.0.1:2379", "127.0.0.1:2380")
    assert first == name("127.0.0.1:2380", "127.0.0.1:2379")
    others = (
        name("127.0.0.1:2379", "127.0.0.1:2380", prefix="two"),
        name("127.0.0.1:2379"),
    )
    assert first not in others
    assert name("127.0.0.1:2379", data_plane="external") == ""
