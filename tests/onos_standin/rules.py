"""Rules as the ONOS stand-in reads, keeps and shows them."""

import re
import zlib
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

import msgspec
from msgspec import Struct

from dzflow.address import Match
from dzflow.errors import BadInput
from sdn.onos.wire import (
    ETH_IPV6,
    PENDING_ADD,
    Criterion,
    FlowName,
    Instruction,
    Number,
    Selector,
    Treatment,
    number,
    port_number,
)
from sdn.tables.flows import FlowKey

_ETHER = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_PREFIX = re.compile(r"([0-9A-Fa-f:.]+)/([0-9]{1,3})")


class BadRequest(BadInput):
    """A request that ONOS answers with 400."""


class SetEther(Struct, frozen=True):
    """Change the destination of the frame."""

    mac: str


class SetAddress(Struct, frozen=True):
    """Change the IPv6 destination."""

    address: int


class SendOut(Struct, frozen=True):
    """Send a copy out of a port."""

    port: int


Step = SetEther | SetAddress | SendOut


class PostedFlow(Struct, frozen=True, rename="camel"):
    """A rule as it is posted; what has no default must be there."""

    priority: int
    is_permanent: bool
    device_id: str
    timeout: int | None = None
    table_id: Number = 0
    selector: Selector = Selector()
    treatment: Treatment = Treatment()
    app_id: str = "org.onosproject.rest"


class _Posted(Struct):
    flows: list[PostedFlow]


class _Named(Struct):
    flows: list[FlowName]


@dataclass(eq=False)
class Rule:
    """A rule that the stand-in keeps."""

    device: str
    app: str
    key: FlowKey
    steps: tuple[Step, ...]
    goto: int | None
    id: int
    state: str = PENDING_ADD

    def shown(self, packets: int, octets: int) -> dict[str, object]:
        """The rule as a GET shows it."""
        return {
            "id": str(self.id),
            "appId": self.app,
            "groupId": 0,
            "priority": self.key.priority,
            "timeout": 0,
            "isPermanent": True,
            "deviceId": self.device,
            "state": self.state,
            "life": 0,
            "packets": packets,
            "bytes": octets,
            "tableId": self.key.table,
            "treatment": {"instructions": self._instructions(), "deferred": []},
            "selector": {"criteria": self._criteria()},
        }

    def _criteria(self) -> list[dict[str, object]]:
        criteria: list[dict[str, object]] = []
        if self.key.in_port is not None:
            criteria.append({"type": "IN_PORT", "port": self.key.in_port})
        if self.key.match is not None:
            criteria.append({"type": "ETH_TYPE", "ethType": f"{ETH_IPV6:#x}"})
            if self.key.match.mask:
                criteria.append({"type": "IPV6_DST", "ip": str(self.key.match)})
        return criteria

    def _instructions(self) -> list[dict[str, object]]:
        shown: list[dict[str, object]] = []
        for step in self.steps:
            if isinstance(step, SendOut):
                shown.append({"type": "OUTPUT", "port": str(step.port)})
            elif isinstance(step, SetEther):
                mac = step.mac.upper()
                shown.append({"type": "L2MODIFICATION", "subtype": "ETH_DST", "mac": mac})
            else:
                ip = str(IPv6Address(step.address))
                shown.append({"type": "L3MODIFICATION", "subtype": "IPV6_DST", "ip": ip})
        if self.goto is not None:
            shown.append({"type": "TABLE", "tableId": self.goto})
        return shown or [{"type": "NOACTION"}]


def read_posted(body: bytes, app: str | None, id_bits: int) -> list[Rule]:
    """The rules of a POST; raises BadRequest, for all of them, if one is wrong."""
    try:
        posted = msgspec.json.decode(body, type=_Posted)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from error
    return [_rule(flow, app or flow.app_id, id_bits) for flow in posted.flows]


def read_named(body: bytes) -> list[FlowName]:
    """The rules that a DELETE names."""
    try:
        return msgspec.json.decode(body, type=_Named, strict=False).flows
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from error


def _rule(flow: PostedFlow, app: str, id_bits: int) -> Rule:
    if not flow.is_permanent and flow.timeout is None:
        raise BadRequest("timeout member is required in FlowRule if the flow is temporary")
    table = number(flow.table_id)
    if table is None or not 0 <= table < 255:
        raise BadRequest(f"{flow.table_id} is no table")
    if not 0 <= flow.priority <= 65535:
        raise BadRequest(f"priority {flow.priority} is out of range")
    in_port, match = _match(flow.selector.criteria)
    key = FlowKey(table, flow.priority, in_port, match)
    if flow.treatment.deferred:
        raise BadRequest("deferred instructions are not supported by this stand-in")
    steps, goto = _steps(flow.treatment.instructions)
    return Rule(flow.device_id, app, key, steps, goto, _id(flow.device_id, app, key, id_bits))


def _id(device: str, app: str, key: FlowKey, bits: int) -> int:
    """As in ONOS: the number of the application, then a hash of the rule's match."""
    return zlib.crc32(app.encode()) % 0x7FFF << 48 | zlib.crc32(f"{device} {key}".encode()) >> (
        32 - bits
    )


def _match(criteria: tuple[Criterion, ...]) -> tuple[int | None, Match | None]:
    in_port: int | None = None
    ether: int | None = None
    prefix: Match | None = None
    for criterion in criteria:
        if criterion.type == "IN_PORT":
            in_port = _number(port_number(criterion.port), "port")
        elif criterion.type == "ETH_TYPE":
            ether = _number(number(criterion.eth_type), "ethType")
        elif criterion.type == "IPV6_DST":
            prefix = _prefix(criterion.ip)
        else:
            raise BadRequest(f"Criterion type {criterion.type} is not supported")
    if ether not in (None, ETH_IPV6):
        raise BadRequest(f"ethType {ether:#x} is not supported by this stand-in")
    if prefix is not None and ether is None:
        raise BadRequest("IPV6_DST needs ETH_TYPE 0x86dd beside it")
    return in_port, prefix or (Match(0, 0) if ether else None)


def _prefix(text: str | None) -> Match:
    found = _PREFIX.fullmatch(text or "")
    try:
        if found is None:
            raise ValueError(f"Malformed IP prefix string: {text}")
        network = IPv6Network((found[1], int(found[2])), strict=False)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return Match(int(network.network_address), int(network.netmask))


def _steps(instructions: tuple[Instruction, ...]) -> tuple[tuple[Step, ...], int | None]:
    steps: list[Step] = []
    goto: int | None = None
    for one in instructions:
        kind = one.type, one.subtype
        if one.type == "OUTPUT":
            steps.append(SendOut(_number(port_number(one.port), "port")))
        elif one.type == "TABLE":
            goto = _number(number(one.table_id), "tableId")
        elif kind == ("L2MODIFICATION", "ETH_DST"):
            if not _ETHER.fullmatch(one.mac or ""):
                raise BadRequest(f"{one.mac} is no MAC address")
            steps.append(SetEther(str(one.mac)))
        elif kind == ("L3MODIFICATION", "IPV6_DST"):
            try:
                steps.append(SetAddress(int(IPv6Address(one.ip or ""))))
            except ValueError as error:
                raise BadRequest(str(error)) from error
        elif one.type != "NOACTION":
            raise BadRequest(f"Instruction type {one.type} {one.subtype or ''} is not supported")
    return tuple(steps), goto


def _number(value: int | None, name: str) -> int:
    if value is None:
        raise BadRequest(f"{name} member is required, and must be a number")
    return value
