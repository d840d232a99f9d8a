"""The raw stream has the flow-mods of the service's load, and counts only what switches take."""

import pytest

from bench.load.flow_mods import flow_mods
from bench.raw_stream import RawStreamRefused, raw_stream
from sdn.network.topologies import topology
from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, ToGroup
from tests.sdn.lab.support import needs_lab

ACTIVE, REQUESTS = 100, 400


def test_flow_mods_add_what_is_missing_and_delete_what_is_there() -> None:
    found = flow_mods(topology("fat-tree:10"), "uniform", ACTIVE, REQUESTS, 8)
    kinds = dict.fromkeys(Change, 0)
    for ops in found.values():
        there: dict[FlowKey, FlowEntry] = {}
        for op in ops:
            kinds[op.change] += 1
            if op.change is Change.ADD:
                assert there.setdefault(op.entry.key, op.entry) is op.entry
            else:
                assert op.change is Change.DELETE
                assert there.pop(op.entry.key) == op.entry
    # As many removals as further subscriptions: what is left are the entries of the active ones.
    assert kinds[Change.DELETE] > kinds[Change.ADD] / 2
    assert len({op.entry.match.mask for ops in found.values() for op in ops if op.entry.match}) > 10


@needs_lab
async def test_switches_take_all_flow_mods_of_the_raw_stream() -> None:
    network = topology("line:3")
    assert await raw_stream(network, flow_mods(network, "uniform", 20, 40, 4), 10) > 0


@needs_lab
async def test_a_raw_stream_that_a_switch_refuses_is_an_error() -> None:
    network = topology("line:2")
    missing = FlowOp(Change.ADD, FlowEntry(1, 1, None, (ToGroup(7),)))
    with pytest.raises(RawStreamRefused, match="switch s1 answers an error"):
        await raw_stream(network, {"s1": [missing], "s2": []}, 10)
