"""Entries to ONOS's rules and back.

A leg to a host needs no group: a rule sends copies to switches first, then rewrites the
destination to where all subscribers listen, then sends to hosts. All hosts share that address, so
the packet may stay rewritten from one host to the next; under `lpm` no table follows that minds.
"""

from collections.abc import Mapping
from ipaddress import IPv6Address, IPv6Network

import msgspec

from dzflow.address import ALL, DELIVERY, DELIVERY_MAC, Match
from dzflow.errors import BadInput
from dzflow.region import is_prefix
from sdn.onos.wire import (
    ETH_IPV6,
    Criterion,
    Flow,
    Instruction,
    NewFlow,
    Selector,
    Treatment,
    number,
    port_number,
)
from sdn.tables.flows import Action, FlowEntry, Output, ToGroup

NOBODY = ToGroup(0)
"""The group of a copy that is rewritten for a host at a port without one."""

_REWRITE = (
    Instruction("L2MODIFICATION", "ETH_DST", mac=DELIVERY_MAC),
    Instruction("L3MODIFICATION", "IPV6_DST", ip=str(IPv6Address(DELIVERY))),
)
_NOTHING = Instruction("NOACTION")
_SELECTOR = msgspec.json.Decoder(Selector)
_TREATMENT = msgspec.json.Decoder(Treatment)
_ANY_IPV6 = Match(0, 0)


class UnsupportedEntry(BadInput):
    """An entry that no rule of ONOS can stand for; nothing was sent."""


def canonical(entry: FlowEntry, ports: Mapping[int, int | None]) -> FlowEntry:
    """An entry as it is read back: its actions in the usual order, without those for hosts that
    are gone (whose group has no port)."""
    actions = {a for a in entry.actions if not isinstance(a, ToGroup) or _port(a, ports)}
    return _entry(entry, actions)


def encode(entry: FlowEntry, device: str, ports: Mapping[int, int | None]) -> NewFlow:
    """The rule of an entry; `ports` tells where the host of each group is, None if it is gone."""
    criteria = []
    if entry.in_port is not None:
        criteria.append(Criterion("IN_PORT", port=entry.in_port))
    if entry.match is not None:
        criteria.append(Criterion("ETH_TYPE", eth_type=f"{ETH_IPV6:#x}"))
        if entry.match != _ANY_IPV6:
            criteria.append(Criterion("IPV6_DST", ip=_prefix(entry.match)))
    instructions = [_output(a.port) for a in entry.actions if isinstance(a, Output)]
    groups = [_port(action, ports) for action in entry.actions if isinstance(action, ToGroup)]
    hosts = [port for port in groups if port is not None]
    if groups and entry.goto is not None:
        raise UnsupportedEntry(
            f"{entry} rewrites copies for hosts and goes on to another table, which would get the"
            " rewritten packet; through ONOS only the plan lpm works"
        )
    if hosts:
        instructions += [*_REWRITE, *map(_output, hosts)]
    if entry.goto is not None:
        instructions.append(Instruction("TABLE", table_id=entry.goto))
    return NewFlow(
        device,
        entry.priority,
        entry.table,
        Selector(tuple(criteria)),
        Treatment(tuple(instructions) or (_NOTHING,)),
    )


def decode(flow: Flow, groups: Mapping[int, int]) -> FlowEntry | None:
    """The entry of a rule, None if we would never write it; `groups` is the group of each port.

    A rule that rewrites for a port without a host leads to NOBODY.
    """
    table = number(flow.table_id)
    try:
        selected = _selected(_SELECTOR.decode(flow.selector))
        treated = _treated(_TREATMENT.decode(flow.treatment), groups)
    except msgspec.MsgspecError:
        return None
    if table is None or selected is None or treated is None:
        return None
    in_port, match = selected
    actions, goto = treated
    entry = FlowEntry(table, flow.priority, match, (), goto, in_port)
    return _entry(entry, actions)


def _entry(entry: FlowEntry, actions: set[Action]) -> FlowEntry:
    # The order in which the plan lpm puts them.
    ordered = tuple(sorted(actions, key=repr))
    return FlowEntry(entry.table, entry.priority, entry.match, ordered, entry.goto, entry.in_port)


def _port(action: ToGroup, ports: Mapping[int, int | None]) -> int | None:
    try:
        return ports[action.group]
    except KeyError:
        raise UnsupportedEntry(
            f"no host has group {action.group:#x}; call set_network with the pipeline that has it"
        ) from None


def _output(port: int) -> Instruction:
    return Instruction("OUTPUT", port=str(port))


def _prefix(match: Match) -> str:
    if not is_prefix(match.mask, ALL):
        raise UnsupportedEntry(f"ONOS matches prefixes of addresses only, not {match}")
    return str(match)


def _selected(selector: Selector) -> tuple[int | None, Match | None] | None:
    found = {criterion.type: criterion for criterion in selector.criteria}
    if len(found) < len(selector.criteria) or found.keys() - {"IN_PORT", "ETH_TYPE", "IPV6_DST"}:
        return None
    in_port = None
    if "IN_PORT" in found:
        in_port = port_number(found["IN_PORT"].port)
        if in_port is None:
            return None
    if "ETH_TYPE" not in found:
        return (in_port, None) if "IPV6_DST" not in found else None
    if number(found["ETH_TYPE"].eth_type) != ETH_IPV6:
        return None
    if "IPV6_DST" not in found:
        return in_port, _ANY_IPV6
    try:
        prefix = IPv6Network(found["IPV6_DST"].ip or "", strict=False)
    except ValueError:
        return None
    return in_port, Match(int(prefix.network_address), int(prefix.netmask))


def _treated(
    treatment: Treatment, groups: Mapping[int, int]
) -> tuple[set[Action], int | None] | None:
    actions: set[Action] = set()
    goto: int | None = None
    rewritten: set[str] = set()
    if treatment.deferred:
        return None
    for step in treatment.instructions:
        if step.type == "OUTPUT":
            port = port_number(step.port)
            if port is None or len(rewritten) == 1:
                return None
            if not rewritten:
                actions.add(Output(port))
            else:
                actions.add(ToGroup(groups[port]) if port in groups else NOBODY)
        elif step.type == "TABLE":
            goto = number(step.table_id)
            if goto is None:
                return None
        elif _rewrites(step):
            rewritten.add(step.type)
        elif step.type not in ("NOACTION", "DROP"):
            return None
    if rewritten and goto is not None:
        return None
    return actions, goto


def _rewrites(step: Instruction) -> bool:
    if (step.type, step.subtype) == ("L2MODIFICATION", "ETH_DST"):
        return (step.mac or "").lower() == DELIVERY_MAC
    if (step.type, step.subtype) == ("L3MODIFICATION", "IPV6_DST"):
        try:
            return int(IPv6Address(step.ip or "")) == DELIVERY
        except ValueError:
            return False
    return False
