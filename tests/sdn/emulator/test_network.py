"""A whole network over real TCP connections: connecting, losing, finding again."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from sdn.emulator import Dialling, EmulatedNetwork, SwitchModel
from sdn.emulator.connection import MAX_OUT
from sdn.emulator.network import NotReached
from sdn.emulator.switch import MAX_WORK
from sdn.network.topologies import topology
from sdn.network.topology import Link, UnknownLink
from sdn.openflow.protocol.constants import V1_3, V1_4, Role
from sdn.openflow.protocol.events import (
    BarrierReply,
    FlowUpdated,
    PacketIn,
    PortChanged,
    RoleChanged,
    RoleReply,
)
from sdn.tables.flows import Change, FlowOp
from tests.certificates import Keys
from tests.sdn.clock import leap
from tests.sdn.emulator.support import Controller, add, delete, entry, group, to_controller
from tests.socket_server import SocketServer
from tests.support import until

ONE, LINE = topology("line:1"), topology("line:3")
FRAME = b"x" * 60
QUICK = Dialling(first_retry=0.005, longest_retry=0.02)
HOUR = 3600.0


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_a_switch_is_set_up_and_read_back_over_tcp(version: int) -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], versions=[version]) as network,
    ):
        peer = await controller.switch()
        assert (peer.ready.version, peer.ready.dpid, peer.ready.n_tables) == (version, 1, 254)
        assert [port.number for port in peer.ready.ports] == [1]
        assert await peer.apply_groups([group(7, 1)]) == []
        many = [entry(n, 16) for n in range(3000)]
        assert await peer.apply(add(*many)) == []
        assert await peer.entries() == set(many)
        assert await peer.apply(delete(*many[1:])) == []
        assert set(network.switches["s1"].entries()) == {many[0]}


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_a_switch_is_set_up_over_tls(version: int, keys: Keys) -> None:
    async with (
        Controller(keys.server()) as controller,
        EmulatedNetwork(
            ONE,
            [controller.address],
            versions=[version],
            dialling=Dialling(tls=keys.client()),
        ) as network,
    ):
        peer = await controller.switch()
        many = [entry(n, 16) for n in range(3000)]
        assert await peer.apply(add(*many)) == []
        assert await peer.entries() == set(many)
        network.agents["s1"].drop(0.0)
        again = await controller.switch()
        assert await again.entries() == set(many)


async def test_a_controller_that_cannot_be_trusted_is_not_spoken_to(keys: Keys) -> None:
    async with Controller(keys.server()) as controller:
        stranger = ssl.create_default_context()
        async with EmulatedNetwork(
            ONE, [controller.address], dialling=replace(QUICK, tls=stranger)
        ) as network:
            with pytest.raises(NotReached, match="s1"):
                await network.connected(0.1)
        assert controller.peers.empty()


async def test_switches_wait_for_a_controller_that_is_not_there_yet() -> None:
    controller = Controller()  # it has an address, at which nobody listens yet
    async with EmulatedNetwork(LINE, [controller.address], dialling=QUICK) as network:
        with pytest.raises(NotReached, match="3 switches"):
            await network.connected(0.03)
        async with controller:
            await network.connected()
            assert set(await controller.switches(3)) == {1, 2, 3}


async def test_a_hundred_switches_connect() -> None:
    big = topology("fat-tree:102")
    async with Controller() as controller, EmulatedNetwork(big, [controller.address]) as network:
        await network.connected()
        peers = await controller.switches(102)
        assert set(peers) == {switch.dpid for switch in big.switches}
        for switch in big.switches:
            numbers = {port.number for port in peers[switch.dpid].ready.ports}
            hosts = {host.port for host in big.hosts_at(switch.id)}
            assert numbers == hosts | set(big.switch_ports(switch.id))
        assert len(set(network.endpoints().values())) == len(big.hosts)


async def test_a_dropped_switch_stays_away_until_it_is_told_to_come_back() -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], dialling=QUICK) as network,
    ):
        peer = await controller.switch()
        await peer.apply(add(entry()))
        agent = network.agents["s1"]
        agent.drop()
        await peer.closed.wait()
        with pytest.raises(NotReached):
            await network.connected(0.05)
        assert controller.peers.empty()
        agent.come_back()
        again = await controller.switch()
        assert await again.entries() == {entry()}


async def test_a_dropped_switch_comes_back_by_itself_after_a_time() -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], dialling=QUICK) as network,
    ):
        peer = await controller.switch()
        network.agents["s1"].drop(0.02)
        await peer.closed.wait()
        await controller.switch()


@pytest.mark.parametrize("keep", [False, True])
async def test_a_switch_restarts_with_empty_or_with_old_tables(keep: bool) -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], dialling=QUICK) as network,
    ):
        peer = await controller.switch()
        await peer.apply(add(entry()))
        network.agents["s1"].restart(keep_tables=keep)
        await peer.closed.wait()
        again = await controller.switch()
        assert await again.entries() == ({entry()} if keep else set())


async def test_a_switch_that_restarts_by_itself_connects_again() -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], dialling=QUICK) as network,
    ):
        peer = await controller.switch()
        network.switches["s1"].restart()
        await peer.closed.wait()
        await controller.switch()


async def test_two_controllers_and_a_takeover() -> None:
    async with (
        Controller() as first,
        Controller() as second,
        EmulatedNetwork(ONE, [first.address, second.address]),
    ):
        one, other = await first.switch(), await second.switch()
        for peer, generation in ((one, 1), (other, 2)):
            peer.session.request_role(Role.MASTER, generation)
            peer.flush()
            assert (await peer.expect(RoleReply)).generation == generation
        assert await one.expect(RoleChanged) == RoleChanged(Role.SLAVE, 2)
        (error,) = await one.apply(add(entry()))
        assert error.is_slave
        assert await other.apply(add(entry())) == []


async def test_a_link_that_goes_down_is_told_by_both_ends() -> None:
    async with Controller() as controller, EmulatedNetwork(LINE, [controller.address]) as network:
        peers = await controller.switches(3)
        link = LINE.links[0]
        for up in (False, True):
            network.set_link(link, up)
            for switch, port in link.ends:
                told = await peers[LINE.switch(switch).dpid].expect(PortChanged)
                assert (told.port.number, told.port.up) == (port, up)
        with pytest.raises(UnknownLink):
            network.set_link(Link("s1", 50, "s2", 50), False)


async def test_packets_of_controllers_travel_over_links() -> None:
    lldp = bytes.fromhex("0180c200000e 020000000001 88cc") + b"x" * 46
    async with Controller() as controller, EmulatedNetwork(LINE, [controller.address]) as network:
        peers = await controller.switches(3)
        for switch in network.switches.values():
            switch.change_by_message(to_controller(eth_type=0x88CC))
        link = LINE.links[0]
        (_, out), (far, port) = link.ends
        peers[1].session.packet_out(out, lldp)
        peers[1].flush()
        told = await peers[LINE.switch(far).dpid].expect(PacketIn)
        assert (told.port, told.data) == (port, lldp)


async def test_changes_by_others_reach_the_monitor_at_once() -> None:
    async with Controller() as controller, EmulatedNetwork(ONE, [controller.address]) as network:
        peer = await controller.switch()
        peer.session.start_flow_monitor()
        await peer.apply([])
        network.switches["s1"].change(FlowOp(Change.ADD, entry()), cookie=3)
        assert await peer.expect(FlowUpdated) == FlowUpdated(Change.ADD, 3, entry())


async def test_a_flood_of_packet_ins_does_not_keep_a_switch_from_its_work() -> None:
    async with Controller() as controller, EmulatedNetwork(ONE, [controller.address]) as network:
        peer = await controller.switch()
        switch = network.switches["s1"]
        for _ in range(20):
            switch.send_packet_ins(FRAME, 1, count=1000)
            await asyncio.sleep(0)
        assert await peer.apply(add(entry())) == []
        assert switch.counters.packet_ins + switch.counters.packet_ins_lost == 20_000


async def test_a_slow_switch_does_not_hold_up_another() -> None:
    async with (
        Controller() as controller,
        EmulatedNetwork(
            LINE,
            [controller.address],
            models={"s1": SwitchModel(flow_mod_seconds=3600.0)},
        ) as network,
    ):
        peers = await controller.switches(3)
        waiting = asyncio.create_task(peers[1].apply(add(entry())))
        assert await peers[2].apply(add(entry())) == []
        assert not waiting.done()
        waiting.cancel()
        assert network.switches["s1"].entries() == []


async def test_late_acknowledgements_and_paced_flow_mods_come_by_themselves() -> None:
    model = SwitchModel(rate=2000.0, acknowledge_after=0.005)
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], model=model),
    ):
        peer = await controller.switch()
        many = [entry(n, 16) for n in range(50)]
        assert await peer.apply(add(*many)) == []
        assert await peer.entries() == set(many)


async def test_a_controller_is_not_read_from_while_too_much_work_waits() -> None:
    async with Controller() as controller, EmulatedNetwork(ONE, [controller.address]) as network:
        peer = await controller.switch()
        switch = network.switches["s1"]
        switch.lie()
        many = [entry(n, 24) for n in range(2 * MAX_WORK)]
        acknowledged = asyncio.create_task(peer.apply(add(*many)))
        await until(lambda: switch.busy)
        assert not acknowledged.done()
        switch.behave()
        assert await acknowledged == []
        assert len(switch.tables) == len(many)


async def test_answers_do_not_pile_up_for_a_controller_that_does_not_read() -> None:
    async with Controller() as controller, EmulatedNetwork(ONE, [controller.address]) as network:
        peer = await controller.switch()
        many = [entry(n, 16) for n in range(5000)]
        await peer.apply(add(*many))
        asked = [peer.session.request_flow_stats() for _ in range(24)]
        last = peer.session.send_barrier()
        peer.flush()
        connection = network.switches["s1"].connections[0]
        largest = 0
        answered: set[int] = set()
        while True:
            event = await peer.next()
            largest = max(largest, connection.out_size)
            answered.add(getattr(event, "xid", 0))
            if event == BarrierReply(last):
                break
        assert set(asked) < answered
        assert largest <= 2 * MAX_OUT


async def test_a_silent_controller_is_given_up() -> None:
    ends = []

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        ends.append(await reader.read())

    dialling = replace(QUICK, probe_every=0.02)
    async with (
        SocketServer(silent) as server,
        EmulatedNetwork(ONE, [server.address], dialling=dialling),
    ):
        await until(lambda: ends)


async def test_a_controller_that_stops_answering_is_given_up() -> None:
    dialling = replace(QUICK, probe_every=HOUR)
    async with (
        Controller() as controller,
        EmulatedNetwork(ONE, [controller.address], dialling=dialling),
    ):
        peer = await controller.switch()

        async def is_asked() -> None:
            peer.read.clear()
            await leap(HOUR)  # ends one in which the switch has heard from it
            await leap(HOUR)
            await peer.read.wait()

        for _ in range(3):  # requests for a sign of life, which it answers
            await is_asked()
            await peer.apply([])  # the switch has read the answer, too
        assert not peer.closed.is_set()
        peer.stop_answering()
        await is_asked()
        assert not peer.closed.is_set()
        await leap(HOUR)
        await peer.closed.wait()


async def test_a_network_that_is_left_because_of_an_error_closes_everything() -> None:
    async def fail() -> None:
        async with Controller() as controller, EmulatedNetwork(LINE, [controller.address]):
            await controller.switches(3)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await fail()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_late_acknowledgements_come_on_any_loop(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def many() -> None:
        model = SwitchModel(acknowledge_after=0.0015)
        async with (
            asyncio.timeout(20),
            Controller() as controller,
            EmulatedNetwork(ONE, [controller.address], model=model),
        ):
            peer = await controller.switch()
            for n in range(50):
                assert await peer.apply(add(entry(n, 16))) == []

    run(many())
