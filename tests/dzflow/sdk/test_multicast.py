"""The SDK on a real network: IPv6 multicast between network namespaces, through Open vSwitch."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sdn.lab import HOST_INTERFACE, Lab
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.tables.flows import Batch, Change
from sdn.tables.pipeline import Pipeline
from tests.dzflow.sdk.fake_service import FakeService
from tests.sdn.lab.support import flow_text, install, needs_lab
from tests.support import WAIT, until_sync

pytestmark = needs_lab

LISTENER = """
import json, sys
from dzflow import ControlPlane

url, host, source, count, limit = sys.argv[1:]
with ControlPlane(url, host, reports=False) as control_plane:
    with control_plane.subscribe("stocks", source) as events:
        print("listening", flush=True)
        for _ in range(int(count)):
            print(json.dumps(events.get(float(limit))), flush=True)
    print(json.dumps(control_plane.counters()["stocks"].doubles), flush=True)
"""

# It has a subscription of its own, too: whatever it sends comes to that one as well.
PUBLISHER = """
import json, sys
from dzflow import ControlPlane

url, host, limit = sys.argv[1:]
with ControlPlane(url, host, reports=False) as control_plane:
    own = control_plane.subscribe("stocks", "price >= 200")
    advertisement = control_plane.advertise("stocks", {})
    print("ready", flush=True)
    sys.stdin.readline()
    for price in (100, 200, 300):
        advertisement.publish({"price": price, "volume": 1})
    for _ in range(2):
        print(json.dumps(own.get(float(limit))), flush=True)
    sys.stdin.readline()
"""


class LabPlane:
    """Open vSwitch, as the data plane of the fake control plane."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def open(self, _: Topology, pipeline: Pipeline) -> None:
        install(self._lab, pipeline)

    async def close(self) -> None:
        pass

    def apply(self, batch: Batch) -> None:
        for switch, ops in batch.items():
            for op in ops:
                if op.change is Change.DELETE:
                    match = flow_text(op.entry).rpartition(",actions=")[0]
                    match = match.partition(",")[2]  # without the cookie
                    self._lab.ofctl(switch, "del-flows", "--strict", match)
                else:
                    self._lab.ofctl(switch, "add-flow", flow_text(op.entry))

    def endpoint(self, _: str) -> str | None:
        return None


@pytest.fixture
def lab() -> Iterator[Lab]:
    # Not pytest's own folder: its path is too long for the names of sockets.
    with (
        tempfile.TemporaryDirectory(prefix="lab") as folder,
        Lab(topology("line:3"), root=Path(folder) / "labs") as running,
    ):
        yield running


def start(lab: Lab, host: str, program: str, *words: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return lab.popen(
        host, [sys.executable, "-c", program, *words], stdin=pipe, stdout=pipe, text=True
    )


def line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def test_events_reach_every_process_on_other_hosts_and_on_the_own_one_once(lab: Lab) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(FakeService(plane=LabPlane(lab)))
        lab.relay(service.port)
        limit = str(WAIT)
        url = f"http://127.0.0.1:{service.port}"
        children = [
            stack.enter_context(start(lab, host, LISTENER, url, host, "price >= 200", "2", limit))
            for host in ("h1", "h1", "h3", "h3", "h3")
        ]
        publisher = stack.enter_context(start(lab, "h1", PUBLISHER, url, "h1", limit))
        for child in children:
            assert line(child) == "listening"
        assert line(publisher) == "ready"
        # Copies for the own host stay there.
        copies = "cookie=0x77,priority=65000,ipv6,ipv6_dst=ff1e::d2,actions=drop"
        lab.ofctl("s1", "add-flow", copies)
        lab.wait_cache()
        assert publisher.stdin
        print(file=publisher.stdin, flush=True)
        wanted = ['{"price": 200, "volume": 1}', '{"price": 300, "volume": 1}']
        assert [line(publisher), line(publisher)] == wanted
        for child in children:
            assert [line(child), line(child)] == wanted
            assert line(child) == "0"  # no doubles
            assert child.wait(WAIT) == 0
        print(file=publisher.stdin, flush=True)
        assert publisher.wait(WAIT) == 0
        assert service.records == {}
        assert "n_packets=0" in lab.ofctl("s1", "dump-flows", "cookie=0x77/-1")


def test_the_interface_is_found_or_named(lab: Lab) -> None:
    program = """
import sys
from dzflow.sdk.errors import NoInterface
from dzflow.sdk.events.links import MulticastLink

try:
    link = MulticastLink(sys.argv[1] or None)
    print(link.interface)
    link.close()
except NoInterface as error:
    print(error)
"""

    def chosen(name: str) -> str:
        return lab.exec("h1", [sys.executable, "-c", program, name]).stdout.strip()

    assert chosen("") == HOST_INTERFACE
    assert chosen(HOST_INTERFACE) == HOST_INTERFACE
    assert "no interface 'eth77'; it has lo" in chosen("eth77")
    lab.exec("h1", ["ip", "link", "add", "second", "type", "veth", "peer", "name", "third"])
    lab.exec("h1", ["ip", "link", "set", "second", "up"])
    assert f"any of the interfaces {HOST_INTERFACE}, second; name one" in chosen("")


def test_what_is_sent_to_the_machine_itself_is_no_event(lab: Lab) -> None:
    program = """
import select, socket, sys
from dzflow.sdk.events.links import MulticastLink

link = MulticastLink()
link.join()
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as stranger:
    stranger.sendto(b"spoofed", (sys.argv[1], 9700))
select.select([link], [], [], 20)
print(list(link.receive()))
link.copy(b"an event")
select.select([link], [], [], 20)
print(list(link.receive()))
link.close()
"""
    done = lab.exec("h1", [sys.executable, "-c", program, lab.site("h1").ipv6])
    assert done.stdout.splitlines() == ["[None]", "[b'an event']"]


def test_who_sees_an_id_cannot_suppress_the_events_that_follow(lab: Lab) -> None:
    victim = """
import sys
from dzflow import ControlPlane

url, limit = sys.argv[1:]
with ControlPlane(url, "h3", reports=False) as control_plane:
    with control_plane.subscribe("stocks", {}) as events:
        print("listening", flush=True)
        print(events.get(float(limit)).id, flush=True)
        sys.stdin.readline()
        print(sum(1 for _ in range(20) if events.get(float(limit))), flush=True)
    print(control_plane.counters()["stocks"].malformed, flush=True)
"""
    publisher = """
import sys
from dzflow import ControlPlane

with ControlPlane(sys.argv[1], "h1", reports=False) as control_plane:
    advertisement = control_plane.advertise("stocks", {})
    for count in (1, 20):
        sys.stdin.readline()
        advertisement.publish_many({"price": 7, "volume": n} for n in range(count))
    sys.stdin.readline()
"""
    hostile = """
import sys
from dzflow import ControlPlane
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.links import MulticastLink

with ControlPlane(sys.argv[1], "h2", reports=False) as control_plane:
    view = control_plane.advertise("stocks", {}).view
    print("ready", flush=True)
    seen = int(sys.stdin.readline())
    link = MulticastLink()
    behind = view.address(view.space.keys({"price": 7, "volume": 7}), 0)
    for n in range(1, 51):
        link.send(behind, datagrams.encode(seen + n, {"price": "rubbish"}))
    link.close()
    print("sent", flush=True)
    sys.stdin.readline()
"""
    with ExitStack() as stack:
        service = stack.enter_context(FakeService(plane=LabPlane(lab)))
        lab.relay(service.port)
        url = f"http://127.0.0.1:{service.port}"
        receiving = stack.enter_context(start(lab, "h3", victim, url, str(WAIT)))
        sending = stack.enter_context(start(lab, "h1", publisher, url))
        forging = stack.enter_context(start(lab, "h2", hostile, url))
        assert (line(receiving), line(forging)) == ("listening", "ready")
        until_sync(lambda: len(service.records) == 3)
        lab.wait_cache()
        print(file=sending.stdin, flush=True)
        seen = line(receiving)
        print(seen, file=forging.stdin, flush=True)
        assert line(forging) == "sent"
        print(file=receiving.stdin, flush=True)
        print(file=sending.stdin, flush=True)
        assert line(receiving) == "20"
        assert line(receiving) == "50"
        for child in (sending, forging):
            print(file=child.stdin, flush=True)
        for child in (receiving, sending, forging):
            assert child.wait(WAIT) == 0
