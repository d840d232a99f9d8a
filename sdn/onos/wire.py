"""The JSON of ONOS's REST interface as types, without the fields that we do not use."""

import re

from msgspec import Raw, Struct

_DEVICE = re.compile(r"of:([0-9a-f]{16})")
_PORT = re.compile(r"(?:\[.*\]\()?([0-9]{1,10})\)?")  # `7`, or `[s1-eth7](7)` with its name

ETH_IPV6 = 0x86DD

# States of a rule.
PENDING_ADD = "PENDING_ADD"
ADDED = "ADDED"
PENDING_REMOVE = "PENDING_REMOVE"
REMOVED = "REMOVED"
FAILED = "FAILED"

Number = int | str
"""Some releases write numbers as they are, others as text."""


class Criterion(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing that a rule asks of a packet."""

    type: str
    eth_type: Number | None = None
    ip: str | None = None
    port: Number | None = None


class Instruction(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing that a rule does with a packet."""

    type: str
    subtype: str | None = None
    port: Number | None = None
    mac: str | None = None
    ip: str | None = None
    table_id: Number | None = None


class Selector(Struct, frozen=True):
    """What a rule matches."""

    criteria: tuple[Criterion, ...] = ()


class Treatment(Struct, frozen=True):
    """What a rule does, in this order."""

    instructions: tuple[Instruction, ...] = ()
    deferred: tuple[Instruction, ...] = ()


class NewFlow(Struct, frozen=True, rename="camel"):
    """A rule as it is sent to ONOS."""

    device_id: str
    priority: int
    table_id: int
    selector: Selector
    treatment: Treatment
    timeout: int = 0
    is_permanent: bool = True


class Flow(Struct, frozen=True, rename="camel"):
    """A rule as ONOS reports it, of ours or of another application.

    Match and treatment are read only if the rule is ours: those of others may have any form.
    """

    id: Number
    app_id: Number
    state: str
    priority: int
    table_id: Number = 0
    selector: Raw = Raw(b"{}")
    treatment: Raw = Raw(b"{}")


class FlowName(Struct, frozen=True, rename="camel"):
    """The name by which a rule is deleted."""

    device_id: str
    flow_id: str


class NewFlows(Struct, frozen=True):
    """The body that adds rules."""

    flows: list[NewFlow]


class Flows(Struct, frozen=True):
    """The rules of a device."""

    flows: list[Flow]


class FlowNames(Struct, frozen=True):
    """The body that deletes rules."""

    flows: list[FlowName]


class Device(Struct, frozen=True):
    """A switch, or another device, that ONOS knows."""

    id: str
    type: str = "SWITCH"
    available: bool = True


class Devices(Struct, frozen=True):
    """All devices."""

    devices: list[Device]


class LinkEnd(Struct, frozen=True):
    """Where a link begins or ends; a host has no device."""

    port: Number
    device: str = ""


class DirectedLink(Struct, frozen=True):
    """One direction of a link."""

    src: LinkEnd
    dst: LinkEnd
    type: str = "DIRECT"
    state: str = "ACTIVE"


class Links(Struct, frozen=True):
    """All links, each direction by itself."""

    links: list[DirectedLink]


class Location(Struct, frozen=True, rename="camel"):
    """Where a host is."""

    element_id: str
    port: Number


class FoundHost(Struct, frozen=True, rename="camel"):
    """A host; releases before 1.12 give one `location`, later ones several `locations`."""

    mac: str
    ip_addresses: tuple[str, ...] = ()
    locations: tuple[Location, ...] = ()
    location: Location | None = None


class Hosts(Struct, frozen=True):
    """All hosts."""

    hosts: list[FoundHost]


def device_id(dpid: int) -> str:
    """The id in ONOS of the OpenFlow switch with this datapath id."""
    return f"of:{dpid:016x}"


def dpid_of(device: str) -> int | None:
    """The datapath id of a device; None if it is no OpenFlow switch."""
    found = _DEVICE.fullmatch(device)
    return int(found[1], 16) if found else None


def number(value: Number | None) -> int | None:
    """A number however it is written, `0x86dd` too; None if it is none."""
    if not isinstance(value, str):
        return value
    try:
        return int(value, 0)
    except ValueError:
        return None


def port_number(value: Number | None) -> int | None:
    """The number of a port, which may be given with its name; None for `CONTROLLER` and alike."""
    if not isinstance(value, str):
        return value
    found = _PORT.fullmatch(value)
    return int(found[1]) if found else None
