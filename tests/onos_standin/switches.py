"""Puts the stand-in's rules onto emulated switches."""

import struct

from sdn.emulator.switch import EmulatedSwitch
from sdn.openflow.protocol.codec import encode_ops
from sdn.openflow.protocol.constants import V1_4, ActionType, InstructionType, Oxm
from sdn.openflow.protocol.layouts import APPLY, GOTO, OUTPUT
from sdn.tables.flows import Change, FlowEntry, FlowOp
from tests.onos_standin.rules import Rule, SendOut, SetEther, Step


def put(switch: EmulatedSwitch, rule: Rule) -> None:
    """Add a rule, or replace the one that matches the same; raises Refused as the switch does."""
    instructions = b""
    if rule.steps:
        actions = b"".join(map(_action, rule.steps))
        size = APPLY.size + len(actions)
        instructions += APPLY.pack(InstructionType.APPLY_ACTIONS, size) + actions
    if rule.goto is not None:
        instructions += GOTO.pack(InstructionType.GOTO_TABLE, GOTO.size, rule.goto)
    bare = encode_ops(V1_4, [FlowOp(Change.ADD, _bare(rule))], 0)
    length = (len(bare) + len(instructions)).to_bytes(2, "big")
    # As in ONOS, the cookie is the id.
    cookie = rule.id.to_bytes(8, "big")
    switch.change_by_message(bare[:2] + length + bare[4:8] + cookie + bare[16:] + instructions)


def remove(switch: EmulatedSwitch, rule: Rule) -> None:
    """Delete a rule; nothing happens if it is not there."""
    switch.change(FlowOp(Change.DELETE, _bare(rule)))


def counters(switch: EmulatedSwitch, rule: Rule) -> tuple[int, int]:
    """How many packets and bytes a rule has handled."""
    found = switch.tables.find(rule.key)
    return (found.packets, found.octets) if found else (0, 0)


def _bare(rule: Rule) -> FlowEntry:
    table, priority, in_port, match = rule.key
    return FlowEntry(table, priority, match, in_port=in_port)


def _action(step: Step) -> bytes:
    if isinstance(step, SendOut):
        return OUTPUT.pack(ActionType.OUTPUT, OUTPUT.size, step.port, 0)
    if isinstance(step, SetEther):
        mac = bytes.fromhex(step.mac.replace(":", ""))
        return struct.pack("!HHI6s2x", ActionType.SET_FIELD, 16, Oxm.ETH_DST, mac)
    address = step.address.to_bytes(16, "big")
    return struct.pack("!HHI16s", ActionType.SET_FIELD, 24, Oxm.IPV6_DST, address)
