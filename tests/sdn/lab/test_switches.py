"""The switches of a lab: their controllers, their links, their faults."""

import re
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from dzflow.address import EVENT_PORT
from sdn.lab import Certificates, Lab
from sdn.lab.errors import BadController, LabCommandFailed
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, UnknownHost, UnknownLink, UnknownSwitch
from tests.sdn.lab.support import SECONDS, needs_lab

pytestmark = needs_lab

HELLO, ERROR, ECHO, ECHO_REPLY, PORT_STATUS = 0, 1, 2, 3, 12
ADDED, DELETED, MODIFIED = 0, 1, 2
LINK_DOWN, LIVE = 1, 4
FLOW = "cookie=1,actions=drop"


class Controller:
    """A controller that does no more than to greet, in OpenFlow 1.3."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self._listener.settimeout(SECONDS)

    def target(self, protocol: str = "tcp") -> str:
        return f"{protocol}:127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self) -> socket.socket:
        """The next connection of a switch, closed at the end of the test."""
        connection, _ = self._listener.accept()
        connection.settimeout(SECONDS)
        return self._stack.enter_context(connection)

    def greet(self) -> socket.socket:
        """The next connection of a switch, which knows it as established."""
        connection = self.accept()
        connection.sendall(struct.pack("!BBHIBBHI", 4, HELLO, 8, 1, 4, ECHO, 8, 2))
        while receive(connection)[1] != ECHO_REPLY:
            pass
        return connection


@pytest.fixture
def controller() -> Iterator[Controller]:
    with ExitStack() as stack:
        yield Controller(stack)


def receive(connection: socket.socket) -> tuple[int, int, bytes]:
    """The next OpenFlow message: version, type, body."""
    version, kind, length, _ = struct.unpack("!BBHI", exactly(connection, 8))
    return version, kind, exactly(connection, length - 8)


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the switch has closed the connection"
        data += more
    return data


def await_end(connection: socket.socket) -> None:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass


def has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        await_end(connection)
    except BlockingIOError:
        return False
    return True


def await_port_status(connection: socket.socket) -> tuple[int, int, int]:
    """The next change of a port: what has happened, the port's number and its state."""
    while True:
        _, kind, body = receive(connection)
        assert kind != ERROR
        if kind == PORT_STATUS:
            reason, port, state = struct.unpack("!B7xI32xI", body[:48])
            return reason, port, state


def ports(lab: Lab, switch: str) -> set[int]:
    """The ports that a switch says it has."""
    shown = lab.ofctl(switch, "dump-ports-desc")
    return {int(port) for port in re.findall(r"^ (\d+)(?:\(.*\))?: addr", shown, re.M)}


def certificate(folder: Path, name: str, issuer: Sequence[Path] = ()) -> tuple[Path, Path]:
    """A new certificate and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"keyUsage=critical,{'digitalSignature' if issuer else 'keyCertSign'}"]
    command += ["-out", str(cert), "-keyout", str(key)]
    for option, file in zip(("-CA", "-CAkey"), issuer, strict=False):
        command += [option, str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize(
    ("protocols", "version"),
    [(["OpenFlow13"], 4), (["OpenFlow14"], 5), (["OpenFlow13", "OpenFlow14"], 5)],
)
def test_every_switch_greets_its_controller_in_the_version_asked_for(
    root: Path, controller: Controller, protocols: Sequence[str], version: int
) -> None:
    with Lab(topology("line:3"), controller.target(), protocols, root=root):
        for _ in range(3):
            assert receive(controller.accept())[:2] == (version, HELLO)


def test_a_switch_connects_to_each_of_several_controllers(
    root: Path, controller: Controller
) -> None:
    with ExitStack() as stack:
        both = [controller, Controller(stack)]
        stack.enter_context(Lab(topology("line:1"), [c.target() for c in both], root=root))
        for each in both:
            assert receive(each.accept())[1] == HELLO


def test_switches_connect_to_controllers_that_are_named_later(
    root: Path, controller: Controller
) -> None:
    with ExitStack() as stack:
        other = Controller(stack)
        lab = stack.enter_context(Lab(topology("line:2"), root=root))
        lab.set_controllers([controller.target()])
        kept = [controller.greet(), controller.greet()]
        lab.set_controllers([controller.target(), other.target()])
        gone = [other.greet(), other.greet()]
        lab.set_controllers([controller.target()])
        for connection in gone:
            await_end(connection)
        for switch in ("s1", "s2"):
            lab.ofctl(switch, "add-flow", "priority=1,actions=drop")
        with pytest.raises(BadController, match="at least one"):
            lab.set_controllers([])
        assert all(any("drop" in flow for flow in lab.dump_flows(s)) for s in ("s1", "s2"))
        assert not any(map(has_ended, kept))


def test_switches_speak_tls(root: Path, controller: Controller, tmp_path: Path) -> None:
    authority = certificate(tmp_path, "authority")
    cert, key = certificate(tmp_path, "switch", authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*certificate(tmp_path, "controller", authority))
    tls = Certificates(key, cert, authority[0])
    with (
        Lab(topology("line:1"), controller.target("ssl"), tls=tls, root=root),
        context.wrap_socket(controller.accept(), server_side=True) as connection,
    ):
        assert receive(connection)[1] == HELLO


def test_both_switches_report_a_link_that_is_unplugged(root: Path, controller: Controller) -> None:
    with Lab(topology("line:2"), controller.target(), ["OpenFlow13"], root=root) as lab:
        (link,) = lab.topology.links
        both = [controller.greet(), controller.greet()]
        for _ in range(2):  # the second time there is nothing to do
            lab.set_link(link, up=False)
            assert [ports(lab, "s1"), ports(lab, "s2")] == [{2}, {2}]
        for connection in both:
            assert await_port_status(connection)[:2] == (DELETED, 1)
        for _ in range(2):
            lab.set_link(link, up=True)
            assert [ports(lab, "s1"), ports(lab, "s2")] == [{1, 2}, {1, 2}]
        for connection in both:
            assert await_port_status(connection)[:2] == (ADDED, 1)


def test_a_switch_reports_a_host_that_is_unplugged(root: Path, controller: Controller) -> None:
    with Lab(topology("line:1"), controller.target(), ["OpenFlow13"], root=root) as lab:
        connection = controller.greet()
        (host,) = lab.topology.hosts
        lab.set_link(host, up=False)
        while await_port_status(connection) != (MODIFIED, host.port, LINK_DOWN):
            pass
        lab.set_link(host, up=True)
        while await_port_status(connection) != (MODIFIED, host.port, LIVE):
            pass


def test_only_what_the_lab_has_can_be_unplugged(root: Path) -> None:
    with Lab(topology("line:2"), root=root) as lab:
        with pytest.raises(UnknownLink, match="s1:7 - s2:7"):
            lab.set_link(Link("s1", 7, "s2", 7), up=False)
        with pytest.raises(UnknownSwitch):
            lab.set_link(Link("s3", 1, "s4", 1), up=False)
        with pytest.raises(UnknownHost):
            lab.set_link(Host("h9", "s1", 2), up=False)


def test_a_disconnected_switch_keeps_its_tables_and_comes_back_when_told(
    root: Path, controller: Controller
) -> None:
    with Lab(topology("line:1"), controller.target(), ["OpenFlow13"], root=root) as lab:
        connection = controller.greet()
        lab.ofctl("s1", "add-flow", FLOW)
        lab.disconnect("s1")
        await_end(connection)
        assert len(lab.dump_flows("s1")) == 1
        lab.reconnect("s1")
        controller.greet()
        assert len(lab.dump_flows("s1")) == 1


def test_a_restarted_switch_comes_back_empty_while_the_others_stay(
    root: Path, controller: Controller
) -> None:
    with Lab(topology("line:3"), controller.target(), ["OpenFlow13"], root=root) as lab:
        before = [controller.greet() for _ in range(3)]
        for switch in ("s1", "s2", "s3"):
            lab.ofctl(switch, "add-flow", FLOW)
        lab.stop_switch("s2")
        with pytest.raises(LabCommandFailed, match="not a bridge"):
            lab.dump_flows("s2")
        lab.start_switch("s2")
        controller.greet()
        assert [len(lab.dump_flows(switch)) for switch in ("s1", "s2", "s3")] == [1, 0, 1]
        lab.restart_switch("s2")
        controller.greet()
        assert ports(lab, "s2") == {1, 2, 3}
        assert sum(has_ended(connection) for connection in before) == 1


def test_switches_whose_process_was_killed_come_back_empty(
    root: Path, controller: Controller
) -> None:
    with Lab(topology("line:2"), controller.target(), ["OpenFlow13"], root=root) as lab:
        before = [controller.greet(), controller.greet()]
        lab.ofctl("s1", "add-flow", FLOW)
        lab.kill_switches()
        for connection in before:
            await_end(connection)
        lab.start_switches()
        for _ in before:
            controller.greet()
        assert lab.dump_flows("s1") == []
        assert [ports(lab, "s1"), ports(lab, "s2")] == [{1, 2}, {1, 2}]


@pytest.mark.parametrize("refresh", [Lab.wait_cache, Lab.flush_cache])
def test_events_go_by_the_new_tables_once_the_cache_has_followed(
    root: Path, refresh: Callable[[Lab], None]
) -> None:
    with Lab(topology("tree:1,3"), root=root) as lab, ExitStack() as stack:
        sender, *listeners = (stack.enter_context(lab.socket(host)) for host in ("h1", "h2", "h3"))
        for host, listener in zip(("h2", "h3"), listeners, strict=True):
            listener.settimeout(SECONDS)
            listener.bind(("::", EVENT_PORT))
            site = lab.site(host)
            rewrite = f"set_field:{site.mac}->eth_dst,set_field:{site.ipv6}->ipv6_dst"
            actions = f"{rewrite},output:{site.host.port}"
            lab.ofctl("s1", "add-flow", f"ipv6,ipv6_dst=ff1e::/16,actions={actions}")
            refresh(lab)
            sender.sendto(host.encode(), ("ff1e:40::1", EVENT_PORT))
            assert listener.recv(100) == host.encode()
