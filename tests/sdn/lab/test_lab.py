"""Labs come up as their topology says, carry events, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from ipaddress import IPv6Address
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from dzflow.address import DELIVERY, EVENT_PORT, Scope
from dzflow.region import Region
from sdn.lab import HOST_INTERFACE, Lab
from sdn.lab.errors import LabCommandFailed, LabError
from sdn.lab.namespaces import NamespaceThread
from sdn.lab.plan import Command, LabPlan
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, Switch, ToHost, Topology, ToSwitch, UnknownHost
from sdn.tables.pipeline import Pipeline
from tests.sdn.lab.support import (
    SECONDS,
    admit,
    forward,
    install,
    needs_lab,
    traces,
    watched,
)
from tests.strategies import topologies

pytestmark = needs_lab

LISTENER = """
import socket, sys
group, interface, port, count = sys.argv[1:]
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", int(port)))
    index = socket.if_nametoindex(interface).to_bytes(4, sys.byteorder)
    membership = socket.inet_pton(socket.AF_INET6, group) + index
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
    listener.settimeout(20)
    print("listening", flush=True)
    for _ in range(int(count)):
        print(listener.recv(2000).decode(), flush=True)
"""


def listen(lab: Lab, host: str, count: int) -> subprocess.Popen[str]:
    """A process in a host that prints the next events it gets."""
    where = [str(IPv6Address(DELIVERY)), HOST_INTERFACE, str(EVENT_PORT), str(count)]
    child: subprocess.Popen[str] = lab.popen(
        host, [sys.executable, "-c", LISTENER, *where], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stdout.readline() == "listening\n"
    return child


def assert_built_as_told(lab: Lab) -> None:
    for switch in lab.topology.switches:
        shown = lab.ofctl(switch.id, "show")
        (dpid,) = re.findall(r"dpid:([0-9a-f]{16})", shown)
        assert int(dpid, 16) == switch.dpid
        hosts = {host.port for host in lab.topology.hosts_at(switch.id)}
        ports = {int(port) for port in re.findall(r"^ (\d+)(?:\(.*\))?: addr", shown, re.M)}
        assert ports == hosts | set(lab.topology.switch_ports(switch.id))
    plugs = dict(re.findall(r"(\w+) \d+/none: \(patch: peer=(\w+)\)", lab.appctl("dpif/show")))
    assert len(plugs) == 2 * len(lab.topology.links)
    assert all(plugs[peer] == port for port, peer in plugs.items())


def test_an_event_reaches_every_process_on_the_host_that_wants_it(root: Path) -> None:
    scope = Scope(space=5)
    published, wanted = scope.match(Region.parse("1"), 0), scope.match(Region.parse("1*0"), 0)
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(topology("line:3"), root=root))
        pipeline = Pipeline().extended(lab.topology)
        install(lab, pipeline)
        admit(lab, pipeline, "h1", published)
        for link in lab.topology.links:
            forward(lab, pipeline, link.a, ToSwitch(link.a_port), wanted)
        forward(lab, pipeline, "s3", ToHost("h3"), wanted)
        listeners = [stack.enter_context(listen(lab, "h3", 2)) for _ in range(3)]

        with lab.socket("h1") as publisher:
            for event, dz in [
                ("not published", "010"),
                ("not wanted", "111"),
                ("first", "100"),
                ("second", "110"),
            ]:
                address = str(IPv6Address(scope.event(Region.parse(dz).bits, tree=0)))
                publisher.sendto(event.encode(), (address, EVENT_PORT))
        for listener in listeners:
            assert listener.communicate(timeout=SECONDS)[0] == "first\nsecond\n"


def test_a_socket_can_be_opened_in_a_host_from_outside(root: Path) -> None:
    with (
        Lab(topology("line:1"), root=root) as lab,
        lab.socket("h1") as listener,
        lab.socket("h1") as other,
    ):
        address = (lab.site("h1").ipv6, EVENT_PORT)
        listener.settimeout(SECONDS)
        listener.bind(address)
        other.sendto(b"hello", address)
        assert listener.recv(100) == b"hello"


def test_work_in_a_host_does_not_move_other_work_there(root: Path) -> None:
    def here() -> str:
        return os.readlink("/proc/thread-self/ns/net")

    with Lab(topology("line:1"), root=root) as lab:
        thread = NamespaceThread()
        assert thread.call(here, lab.site("h1").namespace) != here()
        with pytest.raises(ZeroDivisionError):
            thread.call(lambda: 1 // 0, lab.site("h1").namespace)
        assert thread.call(here) == here()
        thread.close()


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(topologies())
def test_any_topology_comes_up_as_told(topology: Topology) -> None:
    # A folder per example; the others' leftovers would be found by the fixture of other tests.
    with tempfile.TemporaryDirectory(prefix="lab") as folder:
        with Lab(topology, root=Path(folder) / "labs") as lab:
            tag = lab.tag
            assert_built_as_told(lab)
        assert traces(tag, Path(folder) / "labs") == []


def test_a_fat_tree_comes_up_as_told(root: Path) -> None:
    with Lab(topology("fat-tree:10"), root=root) as lab:
        assert_built_as_told(lab)


def test_numbers_at_the_ends_of_their_ranges_are_kept(root: Path) -> None:
    edge = Topology.build(
        [Switch("s1", 2**64 - 1), Switch("s2", 1)],
        [Link("s1", 65_279, "s2", 1)],
        [Host("h1", "s1", 1), Host("h2", "s2", 65_279)],
    )
    with Lab(edge, root=root) as lab:
        assert_built_as_told(lab)


def test_a_host_has_its_addresses_and_one_interface(root: Path) -> None:
    host = Host("h1", "s1", 1, mac="02:00:00:00:00:07", ipv6="2001:db8::7")
    with Lab(Topology.build([Switch("s1", 1)], [], [host]), root=root) as lab:
        links = lab.exec("h1", ["ip", "-brief", "link"]).stdout.splitlines()
        assert [line.split("@")[0].split()[0] for line in links] == ["lo", HOST_INTERFACE]
        assert "02:00:00:00:00:07" in links[1]
        assert "2001:db8::7" in lab.exec("h1", ["ip", "address", "show", HOST_INTERFACE]).stdout


def test_commands_in_hosts_give_output_and_exit_code(root: Path) -> None:
    with Lab(topology("line:1"), root=root) as lab:
        assert lab.exec("h1", ["cat"], stdin="text").stdout == "text"
        assert lab.exec("h1", ["sh", "-c", "exit 3"], check=False).returncode == 3
        with pytest.raises(LabCommandFailed, match="h1: sh ended with 3: reason"):
            lab.exec("h1", ["sh", "-c", "echo reason >&2; exit 3"])
        with pytest.raises(LabCommandFailed, match="No such file"):
            lab.exec("h1", ["no-such-command"])
        with pytest.raises(subprocess.TimeoutExpired):
            lab.exec("h1", ["sleep", "1000"], timeout=0.01)
        with pytest.raises(UnknownHost):
            lab.exec("h2", ["true"])


def test_whatever_runs_in_a_host_ends_with_the_lab(root: Path) -> None:
    with Lab(topology("line:1"), root=root) as lab:
        started = lab.popen("h1", ["sleep", "1000"])
        # A process that no one here has started, and that has detached itself.
        detach = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
        with watched(int(lab.exec("h1", ["sh", "-c", detach]).stdout)) as poll:
            lab.close()
            assert poll.poll(SECONDS * 1000)
    assert started.returncode == -signal.SIGKILL


def test_two_labs_run_at_once(root: Path) -> None:
    first, second = Lab(topology("line:2"), root=root), Lab(topology("line:2"), root=root)
    with first:
        with second:
            assert first.tag != second.tag
            first.ofctl("s1", "add-flow", "cookie=1,actions=drop")
            assert second.dump_flows("s1") == []
            assert_built_as_told(second)
        assert len(first.dump_flows("s1")) == 1
        assert_built_as_told(first)


def test_nothing_is_left_after_an_exception(root: Path) -> None:
    def use() -> None:
        with Lab(topology("line:2"), root=root):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()


def test_nothing_is_left_when_a_lab_cannot_start(root: Path) -> None:
    with pytest.raises(LabCommandFailed, match="OpenFlow99"):
        Lab(topology("line:2"), protocols=["OpenFlow99"], root=root).start()


def test_a_lab_that_its_switches_cannot_build_does_not_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open vSwitch's own tool reports success then."""

    def faulty(plan: LabPlan, *_: object) -> list[Command]:
        return [["add-br", plan.bridge("s1")], ["add-port", plan.bridge("s1"), "no-such-device"]]

    monkeypatch.setattr(LabPlan, "network", faulty)
    with pytest.raises(LabCommandFailed, match="no-such-device"):
        Lab(topology("line:1"), root=root).start()


def test_a_lab_can_be_started_once_at_a_time_and_closed_twice(root: Path) -> None:
    lab = Lab(topology("line:1"), root=root)
    with pytest.raises(LabError, match="not running"):
        lab.dump_flows("s1")
    with lab:
        with pytest.raises(LabError, match="runs already"):
            lab.start()
        lab.close()
    with lab:
        assert_built_as_told(lab)


async def test_a_lab_is_an_asynchronous_context_manager_too(root: Path) -> None:
    async with Lab(topology("line:1"), root=root) as lab:
        assert_built_as_told(lab)
