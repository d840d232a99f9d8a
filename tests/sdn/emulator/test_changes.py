"""A network that changes while it runs: hosts come, move and go; controllers, too."""

import pytest
from msgspec.structs import replace

from dzflow.address import DELIVERY, Scope
from sdn.emulator import Dialling, EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Host, PortTaken
from sdn.openflow.protocol.events import PortChanged
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from tests.sdn.emulator.support import Application, Controller

LINE = topology("line:3")
EVENT = Scope(7, 1).event(0b101 << 90, 0)
QUICK = Dialling(first_retry=0.005, longest_retry=0.02)


def flood(network: EmulatedNetwork) -> None:
    """Let every switch send everything out by all other ports (the line has no loop)."""
    for switch in network.switches.values():
        entry = FlowEntry(0, 1, None, tuple(Output(port.number) for port in switch.ports))
        switch.change(FlowOp(Change.MODIFY if switch.entries() else Change.ADD, entry))


async def test_a_host_that_comes_is_reached_and_its_port_is_told() -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(LINE, [controller.address]) as network,
    ):
        peers = await controller.switches(3)
        await network.set_hosts([*LINE.hosts, Host("h9", "s2", 40)])
        told = await peers[2].expect(PortChanged)
        assert (told.port.number, told.port.up) == (40, True)
        flood(network)
        where = network.endpoints()
        with Application(where["h1"]) as publisher, Application(where["h9"]) as new:
            assert await new.join()
            publisher.send(EVENT, b"hello")
            assert (await new.received())[1] == b"hello"


async def test_a_host_that_moves_keeps_its_applications() -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(LINE, [controller.address]) as network,
    ):
        peers = await controller.switches(3)
        flood(network)
        where = network.endpoints()
        with Application(where["h1"]) as publisher, Application(where["h3"]) as mover:
            assert await mover.join()
            old = LINE.host("h3")
            moved = replace(old, switch="s1", port=77)
            await network.set_hosts([*(h for h in LINE.hosts if h.id != "h3"), moved])
            assert network.endpoints() == where
            flood(network)
            told = await peers[3].expect(PortChanged)
            assert (told.port.number, told.port.up) == (old.port, False)
            publisher.send(EVENT, b"here")
            assert await mover.received() == (EVENT, b"here")
            # And back: the port is there and goes up again.
            await network.set_hosts(LINE.hosts)
            told = await peers[3].expect(PortChanged)
            assert (told.port.number, told.port.up) == (old.port, True)
            publisher.send(EVENT, b"again")
            assert (await mover.received())[1] == b"again"


async def test_hosts_may_swap_their_ports() -> None:
    async with EmulatedNetwork(LINE) as network:
        flood(network)
        one, other = LINE.host("h1"), LINE.host("h3")
        swapped = [
            replace(one, switch=other.switch, port=other.port),
            replace(other, switch=one.switch, port=one.port),
        ]
        await network.set_hosts([*swapped, LINE.host("h2")])
        seen: list[str] = []
        network.on_frame = lambda host, _: seen.append(host)
        network.hosts["h2"].publish(DELIVERY, b"x")
        assert sorted(seen) == ["h1", "h3"]
        assert all(port.up for switch in network.switches.values() for port in switch.ports)


async def test_a_host_that_goes_takes_its_endpoint_along() -> None:
    async with EmulatedNetwork(LINE) as network:
        await network.set_hosts(LINE.hosts[:2])
        assert set(network.endpoints()) == {"h1", "h2"}
        gone = LINE.host("h3")
        (port,) = (p for p in network.switches[gone.switch].ports if p.number == gone.port)
        assert not port.up


async def test_hosts_that_do_not_fit_change_nothing() -> None:
    async with EmulatedNetwork(LINE) as network:
        taken = LINE.host("h1")
        with pytest.raises(PortTaken):
            await network.set_hosts([*LINE.hosts, Host("h9", taken.switch, taken.port)])
        assert set(network.endpoints()) == {"h1", "h2", "h3"}


async def test_endpoints_are_where_they_are_wished_unless_the_port_is_taken() -> None:
    async with EmulatedNetwork(LINE) as first:
        ports = {name: port for name, (_, port) in first.endpoints().items()}
        async with EmulatedNetwork(LINE, endpoints=ports) as second:
            assert not set(second.endpoints().values()) & set(first.endpoints().values())
    async with EmulatedNetwork(LINE, endpoints=ports) as third:
        assert {name: port for name, (_, port) in third.endpoints().items()} == ports


async def test_switches_go_over_to_other_controllers() -> None:
    async with (
        Controller() as old,
        Controller() as new,
        EmulatedNetwork(LINE, [old.address], dialling=QUICK) as network,
    ):
        left = await old.switches(3)
        network.set_controllers([new.address])
        assert set(await new.switches(3)) == {1, 2, 3}
        for peer in left.values():
            await peer.closed.wait()
        network.set_controllers([new.address, old.address])
        assert set(await old.switches(3)) == {1, 2, 3}
        assert new.peers.empty()  # the controllers that stayed were not dialled again
