"""Changes of the network: switches, hosts and links."""

from sdn.network.events import (
    PortStateChanged,
)
from sdn.network.topologies import topology
from sdn.network.topology import Host
from sdn.outcomes import Acknowledged
from tests.sdn.southbound.support import LINE, entry, next_event, reconcile, rig


async def test_a_switch_that_left_the_network_is_disconnected() -> None:
    async with rig() as r:
        shorter = topology("line:2")
        await r.driver.set_network(shorter, r.pipeline)
        outcomes = await reconcile(r.driver, "p", 1, {"s1": [entry(1)]})
        assert outcomes == {"s1": Acknowledged(), "s2": Acknowledged()}
        assert r.driver.connected() == {"s1", "s2"}


async def test_a_host_that_moves_to_another_port_changes_its_group() -> None:
    async with rig() as r:
        moved = LINE.with_host(Host("h2", "s2", 40))
        await r.driver.set_network(moved, r.pipeline.extended(moved))
        groups = await r.driver.connection("s2").group_descs()
        assert [group.port for group in groups] == [40]


async def test_a_link_that_goes_down_is_reported() -> None:
    async with rig() as r:
        link = LINE.links[0]
        r.network.set_link(link, up=False)
        event = await next_event(r.driver, PortStateChanged)
        assert not event.up
        assert (event.switch, event.port) in link.ends
