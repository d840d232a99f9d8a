"""Events travel from application to application over loopback, through the emulated tables."""

import socket

import pytest

from dzflow.address import DELIVERY, Scope
from dzflow.host_protocol import (
    FORGET_AFTER,
    JOIN,
    MAX_MEMBERS,
    MAX_PAYLOAD,
    SEND,
    VERSION,
    Members,
    Send,
    parse,
)
from sdn.emulator import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Host, Switch, Topology
from sdn.openflow.protocol.events import PacketIn
from sdn.tables.flows import Change, FlowEntry, FlowOp, GroupOp, Output, ToGroup
from sdn.tables.pipeline import Pipeline
from tests.sdn.emulator.support import Application, Controller, to_controller
from tests.support import until

EVENT = Scope(7, 1).event(0b101 << 90, 0)
LINE = topology("line:3")


def reach_everyone(network: EmulatedNetwork) -> None:
    """Put entries on all switches that bring every event to every other host."""
    pipeline = Pipeline(plan="lpm").extended(network.topology)
    for name, switch in network.switches.items():
        for group in pipeline.base_groups(network.topology, name):
            switch.change_group(GroupOp(Change.ADD, group))
        outputs = [Output(port) for port in network.topology.switch_ports(name)]
        groups = [ToGroup(group.group) for group in pipeline.base_groups(network.topology, name)]
        entry = FlowEntry(0, 1, None, (*outputs, *groups))
        switch.change(FlowOp(Change.ADD, entry))


async def test_every_application_of_every_other_host_gets_an_event_once() -> None:
    async with EmulatedNetwork(LINE) as network:
        reach_everyone(network)
        where = network.endpoints()
        assert set(where) == {"h1", "h2", "h3"}
        with (
            Application(where["h1"]) as publisher,
            Application(where["h2"]) as one,
            Application(where["h2"]) as another,
            Application(where["h3"]) as far,
        ):
            for application in (publisher, one, another, far):
                assert await application.join()
            for payload in (b"first", b"", b"x" * MAX_PAYLOAD):
                publisher.send(EVENT, payload)
                for application in (one, another, far):
                    assert await application.received() == (DELIVERY, payload)
            # What it sent did not come back: the next thing that it gets is another's event.
            far.send(EVENT, b"from afar")
            assert await publisher.received() == (DELIVERY, b"from afar")
        assert network.hosts["h1"].counters.sent == 3
        assert network.hosts["h2"].counters.delivered == 8
        assert network.switches["s2"].counters.received == 4


async def test_a_copy_for_the_own_host_reaches_its_applications_and_nothing_else() -> None:
    async with EmulatedNetwork(LINE) as network:
        reach_everyone(network)
        where = network.endpoints()
        with (
            Application(where["h1"]) as publisher,
            Application(where["h1"]) as neighbour,
            Application(where["h2"]) as far,
        ):
            for application in (publisher, neighbour, far):
                assert await application.join()
            publisher.send(DELIVERY, b"for us")
            for application in (publisher, neighbour):
                assert await application.received() == (DELIVERY, b"for us")
            publisher.send(EVENT, b"for all")
            assert await far.received() == (DELIVERY, b"for all")
        assert network.switches["s1"].counters.received == 1


async def test_who_only_sends_need_not_join_and_who_leaves_gets_nothing_more() -> None:
    async with EmulatedNetwork(LINE) as network:
        reach_everyone(network)
        where = network.endpoints()
        with (
            Application(where["h1"]) as publisher,
            Application(where["h2"]) as one,
            Application(where["h2"]) as other,
        ):
            assert await one.join()
            assert await other.join()
            other.leave()
            assert await one.join()  # their host answers in order: it has read that one leaves
            publisher.send(EVENT, b"to one")
            assert await one.received() == (DELIVERY, b"to one")
            assert network.hosts["h2"].counters.delivered == 1


async def test_an_event_that_no_table_lets_in_is_dropped_and_counted() -> None:
    async with EmulatedNetwork(LINE) as network:
        with Application(network.endpoints()["h1"]) as publisher:
            publisher.send(EVENT, b"nobody wants it")
            await until(lambda: network.switches["s1"].counters.dropped)
        assert network.switches["s2"].counters.received == 0


async def test_a_link_that_is_down_carries_nothing() -> None:
    async with EmulatedNetwork(LINE) as network:
        reach_everyone(network)
        where = network.endpoints()
        with (
            Application(where["h1"]) as publisher,
            Application(where["h2"]) as near,
            Application(where["h3"]) as far,
        ):
            assert await near.join()
            assert await far.join()
            network.set_link(LINE.links[1], up=False)
            publisher.send(EVENT, b"lost on the way")
            assert await near.received() == (DELIVERY, b"lost on the way")
            network.set_link(LINE.links[1], up=True)
            publisher.send(EVENT, b"there again")
            assert await far.received() == (DELIVERY, b"there again")


async def test_a_packet_that_goes_round_and_round_is_given_up() -> None:
    ring = topology("ring:4")
    async with EmulatedNetwork(ring) as network:
        reach_everyone(network)
        with Application(network.endpoints()["h1"]) as publisher:
            publisher.send(EVENT, b"storm")
            await until(lambda: sum(switch.counters.looped for switch in network.switches.values()))
        hops = sum(switch.counters.received for switch in network.switches.values())
        assert hops < 200


async def test_a_packet_goes_as_far_as_a_long_line_is() -> None:
    line = topology("line:150")
    async with EmulatedNetwork(line) as network:
        reach_everyone(network)
        where = network.endpoints()
        with Application(where["h1"]) as publisher, Application(where["h150"]) as far:
            assert await far.join()
            publisher.send(EVENT, b"a long way")
            assert await far.received() == (DELIVERY, b"a long way")


async def test_without_a_rewrite_the_destination_shows_it() -> None:
    async with EmulatedNetwork(LINE) as network:
        here = LINE.host("h1")
        entry = FlowEntry(0, 1, None, (Output(here.port),))
        network.switches["s1"].change(FlowOp(Change.ADD, entry))
        other = FlowEntry(0, 1, None, (Output(LINE.switch_ports("s2")[0]),))
        network.switches["s2"].change(FlowOp(Change.ADD, other))
        where = network.endpoints()
        with Application(where["h2"]) as publisher, Application(where["h1"]) as subscriber:
            assert await subscriber.join()
            publisher.send(EVENT, b"as it was sent")
            assert await subscriber.received() == (EVENT, b"as it was sent")


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x01",
        bytes((2, JOIN)),
        bytes((VERSION, 0)),
        bytes((VERSION, 9)),
        bytes((VERSION, JOIN, 0)),
        bytes((VERSION, SEND)) + bytes(15),
        bytes((VERSION, SEND)) + bytes(16 + MAX_PAYLOAD + 1),
    ],
)
async def test_what_is_no_datagram_of_ours_is_dropped_and_counted(datagram: bytes) -> None:
    assert parse(datagram) is None
    async with EmulatedNetwork(LINE) as network:
        with Application(network.endpoints()["h1"]) as stranger:
            stranger.send_datagram(datagram)
            await until(lambda: network.hosts["h1"].counters.dropped)
            assert await stranger.join()


async def test_only_127_0_0_1_is_listened_to() -> None:
    async with EmulatedNetwork(LINE) as network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.2", 0))
            stranger.sendto(bytes((VERSION, JOIN)), network.endpoints()["h1"])
            await until(lambda: network.hosts["h1"].counters.dropped)


def test_an_event_is_read_from_a_datagram() -> None:
    datagram = bytes((VERSION, SEND)) + EVENT.to_bytes(16, "big") + b"payload"
    assert parse(datagram) == Send(EVENT, b"payload")


def test_applications_that_are_silent_are_forgotten() -> None:
    members = Members()
    one, other = ("127.0.0.1", 1), ("127.0.0.1", 2)
    members.join(one, 0.0)
    members.join(other, 0.0)
    members.join(one, FORGET_AFTER / 2)
    assert members.present(FORGET_AFTER) == [one]
    members.leave(one)
    members.leave(other)
    assert members.present(FORGET_AFTER) == []


def test_there_is_room_for_so_many_applications_of_a_host() -> None:
    members = Members()
    for port in range(MAX_MEMBERS):
        assert members.join(("127.0.0.1", port), 0.0)
    late = ("127.0.0.1", 9999)
    assert not members.join(late, 1.0)
    assert members.join(("127.0.0.1", 5), 1.0)
    assert members.join(late, FORGET_AFTER)


async def test_a_host_announces_itself_and_the_controller_hears_of_it() -> None:
    given = Host("h1", "s1", 3, mac="02:00:00:00:00:77", ipv6="fd00::7")
    network_of_one = Topology.build([Switch("s1", 1)], [], [given])
    async with (
        Controller() as controller,
        EmulatedNetwork(network_of_one, [controller.address]) as network,
    ):
        peer = await controller.switch()
        discovery = to_controller(eth_type=0x86DD, ip_proto=58, icmpv6_type=136)
        network.switches["s1"].change_by_message(discovery)
        network.hosts["h1"].announce()
        told = await peer.expect(PacketIn)
        assert told.port == 3
        assert told.data[6:12] == bytes.fromhex("020000000077")
        assert told.data[62:78] == bytes.fromhex("fd00" + "00" * 13 + "07")


async def test_any_frame_can_be_sent_and_seen_at_hosts() -> None:
    seen: list[tuple[str, bytes]] = []
    frame = b"\xff" * 12 + b"\x12\x34" + b"anything"
    async with EmulatedNetwork(LINE, on_frame=lambda *what: seen.append(what)) as network:
        for name, switch in network.switches.items():
            outputs = [Output(port) for port in LINE.switch_ports(name)]
            outputs += [Output(host.port) for host in LINE.hosts_at(name)]
            switch.change(FlowOp(Change.ADD, FlowEntry(0, 1, None, tuple(outputs))))
        network.hosts["h2"].inject(frame)
        assert sorted(seen) == [("h1", frame), ("h3", frame)]
        assert network.hosts["h1"].counters.received == 1
