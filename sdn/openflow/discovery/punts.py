"""The entries that send LLDP and neighbour discovery to the controller.

They are in the admission table, with a lower priority than entries of other applications are likely
to have, so an application that handles these packets already goes on to do so. A packet that
matches such an entry goes to the controller and nowhere else: entries with a lower priority, or in
later tables, do not see it. Where switches forward other traffic themselves, neighbour discovery
goes that way, too, because hosts could not find each other without it. The cookies differ from
those of our other entries, so that audits leave them alone. Adding the entries again changes
nothing.
"""

import struct

from sdn.openflow.discovery.frames import (
    ETH_LLDP,
    ICMPV6,
    MAX_FRAME,
    NEIGHBOUR_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
)
from sdn.openflow.protocol.constants import (
    ANY,
    CONTROLLER_PORT,
    ETH_IPV6,
    NO_BUFFER,
    ActionType,
    FlowCommand,
    InstructionType,
    Oxm,
    Type,
)
from sdn.openflow.protocol.layouts import APPLY, FLOW_MOD, OUTPUT
from sdn.openflow.protocol.wire import TYPE_LENGTH
from sdn.tables.flows import COOKIE_MARK, NORMAL

PUNT_MARK = COOKIE_MARK - 1
"""The first 16 bits of the cookies of these entries."""

PUNT_PRIORITY = 50
"""Above the miss entries of others, below our admission entries and most entries of others."""

PUNTS = 3
"""How many entries, and thus xids, `punt_mods` makes."""

_IP_PROTO = 0x80001401
_ICMPV6_TYPE = 0x80003A01
_ETH_TYPE_FIELD = struct.Struct("!IH")
_BYTE_FIELD = struct.Struct("!IB")


def punt_mods(version: int, first_xid: int, table: int, forward: bool = False) -> bytes:
    """The flow-mods that add the entries to the admission table, with rising xids.

    With `forward`, neighbour discovery also goes by the switch's own forwarding.
    """
    lldp = _ETH_TYPE_FIELD.pack(Oxm.ETH_TYPE, ETH_LLDP)
    icmp = _ETH_TYPE_FIELD.pack(Oxm.ETH_TYPE, ETH_IPV6) + _BYTE_FIELD.pack(_IP_PROTO, ICMPV6)
    solicitation = icmp + _BYTE_FIELD.pack(_ICMPV6_TYPE, NEIGHBOUR_SOLICITATION)
    advertisement = icmp + _BYTE_FIELD.pack(_ICMPV6_TYPE, NEIGHBOUR_ADVERTISEMENT)
    return b"".join(
        _add(version, first_xid + number, table, number, fields, forward and fields is not lldp)
        for number, fields in enumerate((lldp, solicitation, advertisement))
    )


def is_punt(cookie: int) -> bool:
    """Whether a cookie is that of such an entry."""
    return cookie >> 48 == PUNT_MARK


def _add(version: int, xid: int, table: int, number: int, fields: bytes, forward: bool) -> bytes:
    length = TYPE_LENGTH.size + len(fields)
    match = TYPE_LENGTH.pack(1, length) + fields + bytes(-length % 8)
    output = OUTPUT.pack(ActionType.OUTPUT, OUTPUT.size, CONTROLLER_PORT, MAX_FRAME)
    if forward:
        output += OUTPUT.pack(ActionType.OUTPUT, OUTPUT.size, NORMAL, 0)
    rest = APPLY.pack(InstructionType.APPLY_ACTIONS, APPLY.size + len(output)) + output
    fixed = FLOW_MOD.pack(
        version << 24 | Type.FLOW_MOD << 16 | FLOW_MOD.size + len(match) + len(rest),
        xid,
        PUNT_MARK << 48 | number,
        0,
        table,
        FlowCommand.ADD,
        PUNT_PRIORITY,
        struct.pack("!III", NO_BUFFER, ANY, ANY),
    )
    return fixed + match + rest
