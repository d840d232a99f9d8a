"""Another controller works on the same switches, and neither disturbs the other."""

import asyncio
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from sdn.emulator.network import EmulatedNetwork
from sdn.network.events import MastershipLost, SwitchDown
from sdn.network.topologies import topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.options import RoleName
from sdn.openflow.protocol.constants import V1_3, V1_4, Role
from sdn.openflow.protocol.events import Ready, RoleReply
from sdn.openflow.protocol.session import Session
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import Pipeline
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import LabPlane, Round, lab_plane
from tests.sdn.southbound.support import LINE, NAMES, WAIT, adds, all_up, entry, next_event
from tests.sdn.southbound.test_other_traffic import MESSAGES, converse, with_ipv4
from tests.socket_server import SocketServer
from tests.support import until

LEARNING = "ovs-testcontroller"
needs_learning = pytest.mark.skipif(
    shutil.which(LEARNING) is None,
    reason=f"no {LEARNING}; apt-get install openvswitch-testcontroller",
)


class MasterElsewhere:
    """A controller that becomes the master of each switch that connects to it."""

    def __init__(self) -> None:
        self.port = 0
        self.masters = 0  # switches whose master it has become

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session()
        while True:
            writer.write(session.outgoing())
            received = await reader.read(1 << 16)
            if not received:
                break
            for event in session.feed(received):
                match event:
                    case Ready():
                        session.request_role(Role.MASTER, 1 << 40)
                    case RoleReply(role=Role.MASTER):
                        self.masters += 1


@asynccontextmanager
async def master_elsewhere() -> AsyncIterator[MasterElsewhere]:
    other = MasterElsewhere()
    async with SocketServer(other.serve) as server:
        other.port = server.address[1]
        yield other


@pytest.mark.parametrize("version", [V1_3, V1_4])
@pytest.mark.parametrize("role", ["master", "equal"])
async def test_only_as_equal_we_work_on_switches_that_have_another_master(
    role: RoleName, version: int
) -> None:
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, role=role)
    async with (
        master_elsewhere() as other,
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver,
        EmulatedNetwork(LINE, [("127.0.0.1", driver.port)], versions=(version,)) as network,
    ):
        await all_up(driver, NAMES)
        network.set_controllers([("127.0.0.1", driver.port), ("127.0.0.1", other.port)])
        await until(lambda: other.masters == len(NAMES))
        applied = await driver.apply("p", 1, {"s2": adds(1)})
        if role == "master":
            assert isinstance(applied["s2"], Undefined)
            assert isinstance(await next_event(driver, MastershipLost), MastershipLost)
            return
        assert applied == {"s2": Acknowledged()}
        assert entry(1) in network.switches["s2"].entries()
        network.agents["s2"].drop()
        network.agents["s2"].come_back()
        await all_up(driver, ["s2"])
        assert await driver.apply("p", 1, {"s2": adds(2)}) == {"s2": Acknowledged()}


async def test_nothing_is_sent_while_the_process_may_not_change_switches() -> None:
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, role="equal")
    permitted = True
    driver = OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options, permits=lambda: permitted)
    async with driver, EmulatedNetwork(LINE, [("127.0.0.1", driver.port)]) as network:
        await all_up(driver, NAMES)
        switch = network.switches["s2"]
        assert await driver.apply("p", 1, {"s2": adds(1)}) == {"s2": Acknowledged()}
        permitted = False
        sent = switch.counters.flow_mods
        applying = asyncio.create_task(driver.apply("p", 1, {"s2": adds(2)}))
        switch.change(FlowOp(Change.DELETE, entry(1)))
        assert isinstance((await driver.audit("s2"))["s2"], Undefined)
        driver.assign([], 2)  # as the process does when it notices
        assert isinstance((await applying)["s2"], Undefined)
        assert switch.counters.flow_mods == sent
        permitted = True
        driver.assign(NAMES, 3)
        await all_up(driver, NAMES)
        assert await driver.apply("p", 1, {"s2": adds(2)}) == {"s2": Acknowledged()}


# Open vSwitch

FOREIGN_FLOWS = (
    "cookie=0x77,table=0,priority=300,tcp,tp_dst=9,actions=drop",
    "cookie=0x77,table=0,priority=0,actions=CONTROLLER:128",
    "table=1,priority=40000,ipv6,ipv6_dst=ff0e::1,actions=drop",  # no cookie, in a table of ours
    "cookie=0xd2f0000000000000,table=2,priority=9,arp,actions=drop",  # nearly ours
    "cookie=0x77,table=200,priority=1,actions=group:7",
)


@needs_lab
@pytest.mark.parametrize("protocol", ["OpenFlow13", "OpenFlow14"])
async def test_reconciliation_leaves_the_entries_and_groups_of_others_alone(protocol: str) -> None:
    work = Round("legs", LINE, seed=6)
    async with lab_plane(LINE, work.plant.pipeline, work.partition_of, protocol) as plane:
        lab = plane.lab
        lab.ofctl("s2", "add-group", "group_id=7,type=all,bucket=actions=drop")
        for flow in FOREIGN_FLOWS:
            lab.ofctl("s2", "add-flow", flow)
        foreign = {f for f in lab.dump_flows("s2") if "cookie=0xd2f1" not in f}
        assert len(foreign) >= len(FOREIGN_FLOWS)
        await work.add(plane, work.markers(advertised=True))
        await work.add(plane, work.markers(advertised=False))
        assert await plane.southbound.audit("s2") == {"s2": Acknowledged()}
        assert isinstance(plane.southbound, OpenFlowDriver)
        lab.disconnect("s2")
        await next_event(plane.southbound, SwitchDown)
        lab.reconnect("s2")
        await all_up(plane.southbound, ["s2"])
        await plane.southbound.set_network(LINE, work.plant.pipeline)
        await work.check_tables(plane)
        await work.check_events(plane, 20)
        assert {f for f in lab.dump_flows("s2") if "cookie=0xd2f1" not in f} == foreign
        assert "group_id=7," in lab.ofctl("s2", "dump-groups")


@contextmanager
def learning_controller() -> Iterator[int]:
    """Open vSwitch's controller for learning switches; yields its port."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        free.close()
        command = [LEARNING, f"--unixctl={Path(folder) / 'ctl'}", f"ptcp:{port}:127.0.0.1"]
        with subprocess.Popen(command) as controller:
            try:
                yield port
            finally:
                controller.kill()


async def talk(plane: LabPlane) -> None:
    addresses = with_ipv4(plane.lab)
    assert await asyncio.to_thread(converse, plane.lab, "h1", "h2", addresses["h2"]) == MESSAGES


@needs_lab
@needs_learning
@pytest.mark.parametrize("role", ["master", "equal"])
async def test_hosts_talk_through_another_controller_while_events_flow(role: RoleName) -> None:
    network = topology("tree:1,2")
    work = Round("legs", network, seed=7)
    with learning_controller() as port:
        async with lab_plane(
            network, work.plant.pipeline, work.partition_of, role=role, others=(port,)
        ) as plane:
            await until(lambda: any("CONTROLLER" in f for f in plane.lab.dump_flows("s1")))
            await work.add(plane, work.markers(advertised=True))
            await work.add(plane, work.markers(advertised=False))
            await work.add(plane, work.requests(True, 4))
            await work.add(plane, work.requests(False, 6))
            talking = asyncio.create_task(talk(plane))
            await work.check_events(plane, 40)
            await talking
            await work.check_tables(plane)
            theirs = FlowEntry(0, 0, None, (Output(0xFFFFFFFD),))
            assert theirs not in await plane.southbound.read("s1")  # and ours are not theirs
            assert any("dl_src=" in f for f in plane.lab.dump_flows("s1")), "it learned the hosts"
