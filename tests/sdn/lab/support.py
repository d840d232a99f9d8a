"""What the tests of the lab share: when to skip, what a lab leaves behind, flows by hand."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from dzflow.address import DELIVERY, DELIVERY_MAC, Match
from sdn.lab import Lab, missing_prerequisites
from sdn.lab.namespaces import path_of
from sdn.lab.processes import all_processes, arguments
from sdn.network.topology import Leg
from sdn.tables.flows import FlowEntry, GroupEntry, Output
from sdn.tables.pipeline import ADMIT_PRIORITY, MATCH_PRIORITY, Pipeline

SECONDS = 20.0  # long enough for anything on a busy machine

_missing = missing_prerequisites()
needs_lab = pytest.mark.skipif(bool(_missing), reason=f"no lab here: {'; '.join(_missing)}")


def traces(tag: str, root: Path) -> list[str]:
    """Whatever there is of a lab: namespaces, interfaces, processes, files."""
    found = [f"namespace {path.name}" for path in path_of(tag).parent.glob(f"{tag}*")]
    found += [f"interface {name}" for _, name in socket.if_nameindex() if name.startswith(tag)]
    found += [
        f"process {pid}" for pid in all_processes() if any(tag in word for word in arguments(pid))
    ]
    return found + [f"file {path}" for path in root.glob(f"{tag}*")]


@contextmanager
def watched(pid: int) -> Iterator[select.poll]:
    """A poll object that becomes ready when the process ends."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        yield poll
    finally:
        os.close(handle)


def install(lab: Lab, pipeline: Pipeline) -> None:
    """Give every switch the tables and groups that it has without any request."""
    for switch in lab.topology.switches:
        for group in pipeline.base_groups(lab.topology, switch.id):
            lab.ofctl(switch.id, "add-group", _group(group))
        entries = pipeline.base_entries(lab.topology, switch.id)
        lab.ofctl(switch.id, "add-flows", "-", stdin="".join(f"{flow_text(e)}\n" for e in entries))


def admit(lab: Lab, pipeline: Pipeline, host: str, match: Match) -> None:
    """Let a host publish."""
    at = lab.topology.host(host)
    entry = FlowEntry(
        pipeline.admission_table(at.switch),
        ADMIT_PRIORITY,
        match,
        goto=pipeline.forward_table(at.switch),
        in_port=at.port,
    )
    lab.ofctl(at.switch, "add-flow", flow_text(entry))


def forward(lab: Lab, pipeline: Pipeline, switch: str, leg: Leg, match: Match) -> None:
    """Send what matches out by a leg."""
    table = pipeline.table(switch, leg)
    actions = (pipeline.action(switch, leg),)
    lab.ofctl(
        switch, "add-flow", flow_text(FlowEntry(table, MATCH_PRIORITY, match, actions, table + 1))
    )


def flow_text(entry: FlowEntry) -> str:
    """An entry as `ovs-ofctl` reads it."""
    words = [f"cookie={entry.cookie:#x}", f"table={entry.table}", f"priority={entry.priority}"]
    if entry.in_port is not None:
        words.append(f"in_port={entry.in_port}")
    if entry.match is not None:
        address, mask = IPv6Address(entry.match.address), IPv6Address(entry.match.mask)
        words += ["ipv6", f"ipv6_dst={address}/{mask}"]
    actions = [
        f"output:{action.port}" if isinstance(action, Output) else f"group:{action.group}"
        for action in entry.actions
    ]
    if entry.goto is not None:
        actions.append(f"goto_table:{entry.goto}")
    return f"{','.join(words)},actions={','.join(actions) or 'drop'}"


def _group(group: GroupEntry) -> str:
    rewrite = f"set_field:{DELIVERY_MAC}->eth_dst,set_field:{IPv6Address(DELIVERY)}->ipv6_dst"
    return f"group_id={group.group},type=all,bucket=actions={rewrite},output:{group.port}"
