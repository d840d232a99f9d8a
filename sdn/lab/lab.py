"""A network of real Open vSwitch switches, with hosts in network namespaces."""

from __future__ import annotations

import socket as sockets
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sdn.lab import prerequisites, registry
from sdn.lab.errors import BadController, LabCommandFailed, LabError
from sdn.lab.namespaces import NamespaceThread
from sdn.lab.open_vswitch import OpenVSwitch
from sdn.lab.plan import (
    HOST_INTERFACE,
    PROTOCOLS,
    Certificates,
    HostSite,
    LabPlan,
    check_controllers,
)
from sdn.lab.relay import LOOPBACK, MAX_CONNECTIONS, Relay
from sdn.lab.run import TIMEOUT, run
from sdn.network.topology import Host, Link, Topology, UnknownLink

_NO_OFFLOAD = ("ethtool", "-K", HOST_INTERFACE, "tx", "off")


@dataclass(frozen=True, slots=True)
class _Running:
    """What exists while a lab runs."""

    plan: LabPlan
    record: registry.Record
    thread: NamespaceThread
    ovs: OpenVSwitch
    nowhere: sockets.socket
    relays: list[Relay] = field(default_factory=list)


class Lab:
    """A topology of real switches and hosts; a context manager for `with` and for `async with`.

    Start and end block for about a second. After the end nothing is left; the next lab that
    starts removes the remains of killed ones. `service` names the service that runs it, for its
    other processes (`call_in_host`).
    """

    def __init__(
        self,
        topology: Topology,
        controller: str | Iterable[str] = (),
        protocols: Sequence[str] = PROTOCOLS,
        tls: Certificates | None = None,
        root: Path | None = None,
        service: str = "",
    ) -> None:
        given = (controller,) if isinstance(controller, str) else controller
        self.topology = topology
        self._controllers = check_controllers(given, tls)
        self._protocols = tuple(protocols)
        self._tls = tls
        self._root = root or registry.default_root()
        self._service = service
        self._state: _Running | None = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Build the network; every switch is there, and knows its controllers, on return."""
        if self._state:
            raise LabError(f"lab {self.tag} runs already; close it before you start it again")
        prerequisites.require()
        plan, record, folder = registry.register(self.topology, self._root, self._service)
        thread = NamespaceThread()
        ovs = OpenVSwitch(folder, thread)
        self._state = _Running(plan, record, thread, ovs, sockets.socket())
        try:
            self._state.nowhere.bind((LOOPBACK, 0))
            ovs.start_database()
            ovs.start_switch()
            # Meanwhile the hosts: from a file, so that a clean-up finds the lab of each process.
            (folder / "hosts").write_text(_lines(plan.namespaces()))
            run(["ip", "-batch", str(folder / "hosts")])
            for host, site in plan.sites.items():
                inside = partial(run, ["ip", "-batch", "-"], _lines(plan.inside(host)))
                thread.call(inside, site.namespace)
                # No network card is there to fill in the checksums that would be left to it, and
                # receivers silently drop copies that were rewritten with a wrong one.
                thread.call(partial(run, _NO_OFFLOAD), site.namespace)
            ovs.await_switch()
            ovs.vsctl(plan.network(self._controllers, self._protocols, self._tls))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove everything that the lab has made; does nothing when it is closed already."""
        if not self._state:
            return
        running, self._state = self._state, None
        with ExitStack() as steps:  # from the last to the first, each even if one before it fails
            steps.callback(running.nowhere.close)
            steps.callback(running.thread.close)
            steps.callback(registry.unregister, running.record, self._root)
            steps.callback(running.thread.end_children)
            for relay in running.relays:
                steps.callback(relay.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        # In this thread: a start in another one could not be stopped when the task is cancelled.
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- hosts -----------------------------------------------------------------------------------

    @property
    def tag(self) -> str:
        """The name of this lab, with which all names that it gives begin."""
        return self._running.plan.tag

    def site(self, host: str) -> HostSite:
        """Where a host is: its namespace, its addresses, its port's name on the outside."""
        return self._running.plan.sites[self.topology.host(host).id]

    def exec(
        self,
        host: str,
        argv: Sequence[str],
        stdin: str = "",
        timeout: float = TIMEOUT,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host to its end and return its output."""
        pipe = subprocess.PIPE
        with self.popen(host, argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
            try:
                out, err = child.communicate(stdin, timeout)
            except BaseException:
                child.kill()
                raise
        if check and child.returncode:
            said = (err.strip() or out.strip())[:2000]
            raise LabCommandFailed(f"{host}: {argv[0]} ended with {child.returncode}: {said}")
        return subprocess.CompletedProcess(list(argv), child.returncode, out, err)

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in a host, with the options of `Popen`; it ends with the lab."""
        command = ["ip", "netns", "exec", self.site(host).namespace, *argv]
        return self._running.thread.popen(command, **options)

    def socket(
        self,
        host: str,
        family: sockets.AddressFamily = sockets.AF_INET6,
        kind: sockets.SocketKind = sockets.SOCK_DGRAM,
    ) -> sockets.socket:
        """A socket that belongs to a host, for use by this process; the caller closes it."""
        return self._running.thread.socket(self.site(host).namespace, family, kind)

    def relay(self, port: int) -> Relay:
        """Make 127.0.0.1:`port` of this machine answer at the same address in every host."""
        listeners: list[sockets.socket] = []
        try:
            for host in self.topology.hosts:
                listener = self.socket(host.id, sockets.AF_INET, sockets.SOCK_STREAM)
                listeners.append(listener)
                listener.setblocking(False)
                listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
                listener.bind((LOOPBACK, port))
                listener.listen(MAX_CONNECTIONS)
        except OSError as error:
            for listener in listeners:
                listener.close()
            raise LabError(f"port {port} cannot be had in {host.id}: {error.strerror}") from error
        relay = Relay(listeners, port)
        self._running.relays.append(relay)
        return relay

    # -- switches --------------------------------------------------------------------------------

    def bridge(self, switch: str) -> str:
        """The name of a switch's bridge in Open vSwitch."""
        return self._running.plan.bridge(switch)

    def ofctl(self, switch: str, command: str, *arguments: str, stdin: str = "") -> str:
        """What `ovs-ofctl COMMAND BRIDGE ARGUMENTS…` prints; ports have their numbers in it."""
        words = ["--no-names", command, self.bridge(switch), *arguments]
        return self._running.ovs.ofctl(self._protocols[0], words, stdin)

    def dump_flows(self, switch: str) -> list[str]:
        """The flow entries of a switch as `ovs-ofctl` writes them, without counters."""
        printed = self.ofctl(switch, "dump-flows", "--no-stats")
        return [line.strip() for line in printed.splitlines()]

    def vsctl(self, *words: str) -> str:
        """What `ovs-vsctl` prints; changes have reached the switches on return."""
        return self._running.ovs.vsctl([list(words)])

    def appctl(self, *words: str) -> str:
        """What `ovs-appctl` prints when it asks the switches' process, as for `ofproto/trace`."""
        return self._running.ovs.appctl(*words)

    def wait_cache(self) -> None:
        """Wait, up to a second, until the datapath's cache has followed the tables.

        A barrier covers the tables only; events may go by older ones for some 10 ms more.
        """
        # It answers at the end of a round that may have begun before the tables were changed; only
        # the next one is sure to have seen the change in all of the cache.
        self.appctl("revalidator/wait")
        self.appctl("revalidator/wait")

    def flush_cache(self) -> None:
        """Empty the datapath's cache, at once: the next events go by the tables as they are now."""
        self.appctl("revalidator/purge")

    def set_link(self, cable: Link | Host, up: bool) -> None:
        """Unplug a link or a host's cable, or plug it in again; nothing happens if it is so.

        Switches report the port of a host as down or up, but those of a link as deleted or added:
        Open vSwitch cannot turn a patch port down.
        """
        if isinstance(cable, Host):
            name = self.site(cable.id).port_name
            run(["ip", "link", "set", name, "up" if up else "down"])
        elif self.topology.at(cable.a, cable.a_port) != cable:
            raise UnknownLink(f"there is no link {cable} in this lab", cable)
        else:
            plan, ovs = self._running.plan, self._running.ovs
            ovs.vsctl(plan.plug(cable) if up else plan.unplug(cable))

    def disconnect(self, switch: str) -> None:
        """Cut a switch's connections to its controllers; its tables stay."""
        # A switch that is told to have no controller empties its tables; so it is told another
        # one, at a port that is ours and refuses all connections.
        host, port = self._running.nowhere.getsockname()
        self._connect(switch, [f"tcp:{host}:{port}"])

    def reconnect(self, switch: str) -> None:
        """Let a switch connect to its controllers again."""
        self._connect(switch, self._controllers)

    def set_controllers(self, controllers: Iterable[str]) -> None:
        """Let all switches connect to these controllers, at least one, instead of those before.

        Connections to controllers that stay are kept.
        """
        checked = check_controllers(controllers, self._tls)
        if not checked:
            raise BadController("name at least one: without any, switches empty their tables")
        self._controllers = checked
        plan = self._running.plan
        commands = [plan.connect(switch.id, checked) for switch in self.topology.switches]
        self._running.ovs.vsctl([each for some in commands for each in some])

    def _connect(self, switch: str, controllers: Sequence[str]) -> None:
        if self._controllers:
            self._running.ovs.vsctl(self._running.plan.connect(switch, controllers))

    def stop_switch(self, switch: str) -> None:
        """Take one switch away, with its tables and connections."""
        self._running.ovs.vsctl([["del-br", self.bridge(switch)]])

    def start_switch(self, switch: str) -> None:
        """Bring a switch back that was taken away; its tables are empty."""
        running = self._running
        running.ovs.vsctl(running.plan.switch(switch, self._controllers, self._protocols))

    def restart_switch(self, switch: str) -> None:
        """Take one switch away and bring it back; its tables are empty and its links plugged in."""
        self.stop_switch(switch)
        self.start_switch(switch)

    def kill_switches(self) -> None:
        """Kill the process of all switches, as a power cut would."""
        self._running.ovs.kill_switch()

    def start_switches(self) -> None:
        """Bring all switches back after `kill_switches`; their tables are empty."""
        ovs = self._running.ovs
        ovs.start_switch()
        ovs.await_switch()

    @property
    def _running(self) -> _Running:
        if not self._state:
            raise LabError("the lab is not running; start it first")
        return self._state


def _lines(commands: Iterable[str]) -> str:
    return "".join(f"{command}\n" for command in commands)
