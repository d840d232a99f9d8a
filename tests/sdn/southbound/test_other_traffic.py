"""Other traffic goes through the switches that filter events, or is refused clearly."""

import asyncio
import socket

import pytest
from msgspec.structs import replace

from dzflow.address import match_prefix
from sdn.emulator.network import EmulatedNetwork
from sdn.lab import HOST_INTERFACE, Lab
from sdn.network.events import SwitchUnusable
from sdn.network.topologies import topology
from sdn.network.trees import spanning_trees
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.tables.flows import NORMAL, FlowEntry, Output
from sdn.tables.pipeline import Pipeline, PlanName
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import LabPlane, Round, lab_plane
from tests.sdn.southbound.support import LINE, WAIT, next_event
from tests.support import until

PORT = 5001
MESSAGES = 40
FORWARDING = FlowEntry(0, 0, None, (Output(NORMAL),))


def with_ipv4(lab: Lab) -> dict[str, str]:
    """Give each host an IPv4 address, so that it needs ARP to reach the others."""
    found = {host.id: f"10.9.0.{n}" for n, host in enumerate(lab.topology.hosts, 1)}
    for host, address in found.items():
        lab.exec(host, ["ip", "addr", "add", f"{address}/24", "dev", HOST_INTERFACE])
    return found


def converse(lab: Lab, one: str, other: str, address: str) -> int:
    """Have two hosts exchange messages over TCP; returns how many."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = lab.socket(other, family, socket.SOCK_STREAM)
    client = lab.socket(one, family, socket.SOCK_STREAM)
    with listener, client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, PORT))
        listener.listen()
        client.settimeout(WAIT)
        client.connect((address, PORT))
        server, _ = listener.accept()
        with server:
            server.settimeout(WAIT)
            for number in range(MESSAGES):
                client.sendall(bytes([number]))
                server.sendall(server.recv(1))
                if client.recv(1) != bytes([number]):
                    return number
    return MESSAGES


async def talk_while_events_flow(work: Round, plane: LabPlane) -> None:
    """All hosts talk to each other by IPv4 and IPv6 while events are sent and checked."""
    await work.add(plane, work.markers(advertised=True))
    await work.add(plane, work.markers(advertised=False))
    await work.add(plane, work.requests(True, 6))
    await work.add(plane, work.requests(False, 8))
    addresses = with_ipv4(plane.lab)
    pairs = [(one, other) for one in addresses for other in addresses if one != other]

    def all_converse() -> list[int]:
        return [
            converse(plane.lab, one, other, address)
            for one, other in pairs
            for address in (addresses[other], plane.lab.site(other).ipv6)
        ]

    talking = asyncio.create_task(asyncio.to_thread(all_converse))
    for _ in range(3):
        await work.check_events(plane, 40)
    assert set(await talking) == {MESSAGES}
    await work.check_tables(plane)


@needs_lab
@pytest.mark.parametrize(
    ("plan", "protocol"), [("legs", "OpenFlow13"), ("legs", "OpenFlow14"), ("lpm", "OpenFlow14")]
)
async def test_hosts_talk_through_the_switches_that_filter_events(
    plan: PlanName, protocol: str
) -> None:
    work = Round(plan, LINE, seed=3, other_traffic="normal")
    async with lab_plane(LINE, work.plant.pipeline, work.partition_of, protocol) as plane:
        await talk_while_events_flow(work, plane)


@needs_lab
async def test_a_ring_carries_other_traffic_if_one_link_carries_no_broadcasts() -> None:
    ring = topology("ring:3")
    work = Round("legs", ring, seed=4, other_traffic="normal")
    (tree,) = spanning_trees(ring, 1)
    both = "OpenFlow10", "OpenFlow14"  # ports are told what not to flood in OpenFlow 1.0
    async with lab_plane(ring, work.plant.pipeline, work.partition_of, both) as plane:
        (off,) = set(ring.links) - tree.links
        for switch, port in off.ends:
            plane.lab.ofctl(switch, "mod-port", str(port), "noflood")
        await talk_while_events_flow(work, plane)


@needs_lab
async def test_forwarding_is_switched_on_and_off_and_repaired_like_all_our_entries() -> None:
    work = Round("legs", LINE, seed=5)
    leave = work.plant.pipeline
    normal = replace(leave, other_traffic="normal")
    async with lab_plane(LINE, leave, work.partition_of) as plane:
        assert FORWARDING not in await plane.southbound.read("s2")
        await plane.southbound.set_network(LINE, normal)
        assert FORWARDING in await plane.southbound.read("s2")
        plane.lab.ofctl("s2", "del-flows", "table=0,cookie=0xd2f1000000000000/-1")
        await until(lambda: any("NORMAL" in flow for flow in plane.lab.dump_flows("s2")))
        await plane.southbound.set_network(LINE, leave)
        assert FORWARDING not in await plane.southbound.read("s2")


async def test_a_switch_that_cannot_forward_by_itself_is_refused_with_the_reason() -> None:
    pipeline = Pipeline(other_traffic="normal").extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver,
        EmulatedNetwork(LINE, [("127.0.0.1", driver.port)]),
    ):
        refused = await next_event(driver, SwitchUnusable)
        assert "openflow.other_traffic" in refused.reason
        assert not driver.up()


def test_no_event_matches_the_entry_that_forwards_other_traffic_only() -> None:
    base = [*Pipeline(other_traffic="normal").extended(LINE).base_entries(LINE, "s2")]
    admission = [entry for entry in base if entry.table == 0]
    (drop,) = (entry for entry in admission if not entry.actions and entry.goto is None)
    assert FORWARDING in admission
    assert drop.match == match_prefix(Pipeline().prefix)
    assert drop.in_port is None
    assert drop.priority > FORWARDING.priority
