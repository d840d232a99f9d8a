"""How a switch forwards: a frame in, frames and packet-ins out, by its tables, groups and ports."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dzflow.errors import BadInput
from sdn.emulator import frames
from sdn.emulator.actions import ALL_PORTS, FLOOD, IN_PORT, TABLE, SetField, Steps
from sdn.emulator.model import SwitchModel
from sdn.emulator.tables import Tables
from sdn.openflow.protocol.constants import CONTROLLER_PORT
from sdn.openflow.protocol.messages import Port
from sdn.tables.flows import Output

NO_COOKIE = 0xFFFFFFFFFFFFFFFF

# Why a packet goes to the controller.
NO_MATCH, ACTION, FROM_GROUP, FROM_PACKET_OUT = 0, 1, 4, 5

Frames = list[tuple[int, bytes]]
"""Frames with the ports that they leave by."""


class UnknownPort(BadInput):
    """A port is named that the switch does not have."""


class PortThere(BadInput):
    """A port is added that the switch has already."""


class Punt(NamedTuple):
    """A frame for the controllers."""

    in_port: int
    table: int
    cookie: int
    reason: int
    frame: bytes


class Outcome(Struct):
    """The fate of a frame; `admitted` is False if no entry did anything with it."""

    frames: Frames
    punts: list[Punt]
    admitted: bool = False


class SwitchCounters(Struct):
    """The counters of a switch."""

    received: int = 0  # frames from the network
    sent: int = 0  # frames into the network
    dropped: int = 0  # frames that no entry let in, or for a port that is down or not there
    looped: int = 0  # frames that were given up because they had come too far
    flow_mods: int = 0
    errors: int = 0
    packet_ins: int = 0
    packet_ins_lost: int = 0


class _Packet:
    """A frame on its way through the tables."""

    __slots__ = ("_fields", "address", "frame", "in_port")

    def __init__(self, frame: bytes, in_port: int) -> None:
        self.in_port = in_port
        self._take(frame)

    def _take(self, frame: bytes) -> None:
        self.frame = frame
        self.address = frames.ipv6_destination(frame)
        self._fields: dict[int, int] | None = None

    def fields(self) -> dict[int, int]:
        if self._fields is None:
            self._fields = {frames.IN_PORT: self.in_port, **frames.fields(self.frame)}
        return self._fields

    def set(self, step: SetField) -> None:
        self._take(frames.with_field(self.frame, step.field, step.value))


class Datapath:
    """Tables, groups and ports of one switch."""

    def __init__(self, model: SwitchModel, ports: Iterable[Port]) -> None:
        self.tables = Tables(model)
        self.ports = {port.number: port for port in ports}
        self.counters = SwitchCounters()

    def set_port(self, number: int, up: bool) -> Port | None:
        """Take a port up or down; the port as it is now, None if it was so already."""
        port = self.ports.get(number)
        if port is None:
            raise UnknownPort(f"there is no port {number}; the switch has {sorted(self.ports)}")
        if port.up == up:
            return None
        self.ports[number] = replace(port, up=up)
        return self.ports[number]

    def add_port(self, port: Port) -> None:
        """Have one port more."""
        if port.number in self.ports:
            raise PortThere(f"there is a port {port.number} already; take it up instead")
        self.ports[port.number] = port

    def receive(self, frame: bytes, in_port: int) -> Outcome:
        """The fate of a frame that comes in by a port."""
        self.counters.received += 1
        outcome = Outcome([], [])
        if in_port in self.ports and self.ports[in_port].up:
            self._through_tables(_Packet(frame, in_port), outcome)
        if not outcome.admitted:
            self.counters.dropped += 1
        return outcome

    def execute(self, steps: Steps, frame: bytes, in_port: int) -> Outcome:
        """The fate of a frame that a controller sends."""
        outcome = Outcome([], [], admitted=True)
        packet = _Packet(frame, in_port)
        for step in steps:
            if step == Output(TABLE):
                self._through_tables(_Packet(packet.frame, in_port), outcome)
            else:
                self._run((step,), packet, outcome, (0, NO_COOKIE, FROM_PACKET_OUT))
        return outcome

    def _through_tables(self, packet: _Packet, outcome: Outcome) -> None:
        best = self.tables.best
        table: int | None = 0
        while table is not None:
            rule = best(table, packet.address, packet.in_port, packet.fields)
            if rule is None:
                return
            rule.packets += 1
            rule.octets += len(packet.frame)
            if rule.steps:
                miss = rule.priority == 0 and not rule.fields
                origin = (table, rule.cookie, NO_MATCH if miss else ACTION)
                self._run(rule.steps, packet, outcome, origin)
            table = rule.goto
            if rule.steps or table is not None:
                outcome.admitted = True

    def _run(
        self, steps: Steps, packet: _Packet, outcome: Outcome, origin: tuple[int, int, int]
    ) -> None:
        for step in steps:
            if isinstance(step, Output):
                self._output(step.port, packet, outcome, origin)
            elif isinstance(step, SetField):
                packet.set(step)
            else:
                group = self.tables.groups.get(step.group)
                for bucket in group.buckets if group else ():
                    copy = _Packet(packet.frame, packet.in_port)
                    self._run(bucket, copy, outcome, (origin[0], origin[1], FROM_GROUP))

    def _output(
        self, number: int, packet: _Packet, outcome: Outcome, origin: tuple[int, int, int]
    ) -> None:
        if number == CONTROLLER_PORT:
            outcome.punts.append(Punt(packet.in_port, *origin, packet.frame))
            return
        if number in (FLOOD, ALL_PORTS):
            targets = [port for port in self.ports if port != packet.in_port]
        elif number == IN_PORT:
            targets = [packet.in_port]
        elif number == packet.in_port:  # nothing leaves by the port that it came in, unless told so
            return
        else:
            targets = [number]
        for target in targets:
            port = self.ports.get(target)
            if port is not None and port.up:
                outcome.frames.append((target, packet.frame))
                self.counters.sent += 1
            else:
                self.counters.dropped += 1
