"""A whole emulated network: a switch for each one of a topology, and hosts that exchange events."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from dzflow.errors import DzflowError
from sdn.emulator.agent import Address, Agent, Dialling
from sdn.emulator.datapath import Frames
from sdn.emulator.frames import LLDP
from sdn.emulator.hosts import EmulatedHost
from sdn.emulator.model import SOFTWARE, SwitchModel
from sdn.emulator.switch import EmulatedSwitch
from sdn.network.topology import Host, Link, Switch, Topology, UnknownLink
from sdn.openflow.protocol.constants import VERSIONS
from sdn.openflow.protocol.messages import Port


class NotReached(DzflowError):
    """Some switches have not reached a controller in time."""


class EmulatedNetwork:
    """The switches and hosts of a topology, as an async context manager.

    Each switch connects to all the controllers. `on_frame` is called with the id of a host and each
    frame that reaches it. `endpoints` are ports that the hosts should listen at, if they are free.
    """

    def __init__(
        self,
        topology: Topology,
        controllers: Sequence[Address] = (),
        *,
        model: SwitchModel = SOFTWARE,
        models: Mapping[str, SwitchModel] | None = None,
        versions: Sequence[int] = VERSIONS,
        dialling: Dialling | None = None,
        on_frame: Callable[[str, bytes], None] | None = None,
        endpoints: Mapping[str, int] | None = None,
    ) -> None:
        self.topology = topology
        self.on_frame = on_frame
        models = models or {}
        self.agents: dict[str, Agent] = {}
        for switch in topology.switches:
            make = partial(
                EmulatedSwitch,
                switch.id,
                switch.dpid,
                _ports(topology, switch.id),
                models.get(switch.id, model),
                versions,
            )
            self.agents[switch.id] = Agent(make, controllers, self._carry, dialling)
        self.switches = {name: agent.switch for name, agent in self.agents.items()}
        self.hosts = {
            host.id: EmulatedHost(host, number, self._enter)
            for number, host in enumerate(topology.hosts, 1)
        }
        self._numbered = len(self.hosts)
        # What is at the other end of each port.
        self._far: dict[tuple[str, int], tuple[str, int] | EmulatedHost] = {}
        self._without_lldp: set[tuple[str, int]] = set()  # ports at such links
        for link in topology.links:
            one, other = link.ends
            self._far[one], self._far[other] = other, one
        for known in self.hosts.values():
            self._far[known.host.switch, known.host.port] = known
        # A packet that stays on a tree passes each switch once.
        self._most_hops = 4 * len(self.switches) + 64
        self._timeout = (dialling or Dialling()).timeout
        self._wishes = dict(endpoints or {})

    async def __aenter__(self) -> Self:
        try:
            for host in self.hosts.values():
                await self._open(host)
            for agent in self.agents.values():
                agent.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Close everything, whatever happens to a part of it."""
        ends = [
            *(agent.stop() for agent in self.agents.values()),
            *(host.close(self._timeout) for host in self.hosts.values()),
        ]
        for result in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def connected(self, timeout: float = 10.0) -> None:
        """Wait until each switch has been greeted by a controller."""
        try:
            async with asyncio.timeout(timeout):
                for agent in self.agents.values():
                    await agent.reached.wait()
        except TimeoutError:
            missing = [n for n, agent in self.agents.items() if not agent.reached.is_set()]
            raise NotReached(
                f"{len(missing)} switches have not reached a controller within {timeout} s,"
                f" among them {', '.join(missing[:5])}; is a controller listening?"
            ) from None

    def endpoints(self) -> dict[str, Address]:
        """Where the applications of each host reach it."""
        return {
            name: host.endpoint for name, host in self.hosts.items() if host.endpoint is not None
        }

    # Changes.

    def set_controllers(self, controllers: Sequence[Address]) -> None:
        """Let all switches connect to these controllers instead of those before."""
        for agent in self.agents.values():
            agent.set_controllers(controllers)

    async def set_hosts(self, hosts: Iterable[Host]) -> None:
        """Attach, move and detach hosts, so that there are just these; TopologyError if not so.

        A host that only moves keeps its endpoint and its applications. The switches tell their
        controllers of the ports.
        """
        topology = Topology.build(self.topology.switches, self.topology.links, hosts)
        before = {host.id: host for host in self.topology.hosts}
        after = {host.id: host for host in topology.hosts}
        self.topology = topology
        taken = {(host.switch, host.port) for host in after.values()}
        for name, host in before.items():
            if (host.switch, host.port) not in taken:
                self.switches[host.switch].set_port(host.port, up=False)
            if after.get(name) != host:
                del self._far[host.switch, host.port]
        for name in before.keys() - after.keys():
            await self.hosts.pop(name).close(self._timeout)
        for name, host in after.items():
            if before.get(name) != host:
                await self._attach(host)

    async def _attach(self, host: Host) -> None:
        known = self.hosts.get(host.id)
        if known is None:
            self._numbered += 1
            known = self.hosts[host.id] = EmulatedHost(host, self._numbered, self._enter)
            await self._open(known)
        else:
            known.move(host)
        self._far[host.switch, host.port] = known
        switch = self.switches[host.switch]
        if any(port.number == host.port for port in switch.ports):
            switch.set_port(host.port, up=True)
        else:
            switch.add_port(_port(self.topology.switch(host.switch), host.port))

    async def _open(self, host: EmulatedHost) -> None:
        await host.open(self._wishes.get(host.host.id, 0))

    def set_link(self, link: Link, up: bool) -> None:
        """Take a link up or down: both switches tell their controllers, nothing gets through."""
        if link not in self.topology.links:
            raise UnknownLink(f"there is no link {link}", link)
        for switch, port in link.ends:
            self.switches[switch].set_port(port, up)

    def mute(self, link: Link) -> None:
        """Let nothing through a link from now on, though its ports stay up."""
        if link not in self.topology.links:
            raise UnknownLink(f"there is no link {link}", link)
        for end in link.ends:
            del self._far[end]

    def hide(self, link: Link) -> None:
        """Let no LLDP through a link from now on, as some media converters do."""
        if link not in self.topology.links:
            raise UnknownLink(f"there is no link {link}", link)
        self._without_lldp.update(link.ends)

    def recable(self, link: Link, new: Link) -> None:
        """Unplug a cable, and plug one in elsewhere; a port that a switch lacks is added."""
        self.set_link(link, up=False)
        for end in link.ends:
            del self._far[end]
        before = self.topology
        links = [*(known for known in before.links if known != link), new]
        self.topology = Topology.build(before.switches, links, before.hosts, partial=True)
        one, other = new.ends
        self._far[one], self._far[other] = other, one
        for switch, port in new.ends:
            if any(known.number == port for known in self.switches[switch].ports):
                self.switches[switch].set_port(port, up=True)
            else:
                self.switches[switch].add_port(_port(self.topology.switch(switch), port))

    # The way of a frame.

    def _enter(self, host: Host, frame: bytes) -> None:
        switch = self.switches[host.switch]
        self._carry(host.switch, switch.receive(frame, host.port))

    def _carry(self, switch: str, frames: Frames) -> None:
        """Bring frames that leave a switch to where they end, all in one step."""
        leaving = deque((switch, port, frame) for port, frame in frames)
        hops = 0
        while leaving:
            switch, port, frame = leaving.popleft()
            far = self._far.get((switch, port))
            if isinstance(far, EmulatedHost):
                if self.on_frame is not None:
                    self.on_frame(far.host.id, frame)
                far.receive(frame)
            elif far is not None:
                if (switch, port) in self._without_lldp and frame[12:14] == LLDP:
                    continue
                name, in_port = far
                hops += 1
                if hops > self._most_hops:
                    self.switches[name].counters.looped += 1
                    continue
                for sent_port, sent in self.switches[name].receive(frame, in_port):
                    leaving.append((name, sent_port, sent))


def _ports(topology: Topology, switch: str) -> list[Port]:
    numbers = [*topology.switch_ports(switch), *(host.port for host in topology.hosts_at(switch))]
    return [_port(topology.switch(switch), number) for number in sorted(numbers)]


def _port(switch: Switch, number: int) -> Port:
    return Port(number, f"{switch.id[:9]}-{number}", _mac(switch.dpid, number), up=True)


def _mac(dpid: int, port: int) -> str:
    # Marked as locally administered; hosts have another second byte.
    return (b"\x02" + (dpid & 0xFFFFFF).to_bytes(3, "big") + port.to_bytes(2, "big")).hex(":")
