"""The network as it is stored, and what follows from it."""

import msgspec
import pytest

from configurators.engine.engine import Engine
from configurators.engine.partials import Kind, Partial
from configurators.state.network import (
    Network,
    first_network,
    read_network,
    steps,
    topology_of,
    with_host,
    without_host,
)
from configurators.store.documents import encode
from configurators.store.model import NetworkDoc
from dzflow.address import Scope
from dzflow.region import Region
from sdn.network.switch_limits import SwitchLimits
from sdn.network.topologies import topology
from sdn.network.topology import Host, PortTaken, Switch, Topology, UnknownHost
from sdn.network.trees import BadTreeCount
from sdn.tables.flows import Change
from sdn.tables.pipeline import Pipeline

SCOPE = Scope(1)


def test_a_network_is_rebuilt_from_its_document() -> None:
    doc = first_network(topology("ring:4"), "legs", 2)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(doc), type=NetworkDoc)
    assert again == doc
    network = Network.of(again)
    assert network.topology == topology("ring:4")
    assert network.pipeline == Pipeline().extended(topology("ring:4"))
    assert list(network.trees) == [0, 1]
    assert network.plan(SCOPE) is network.plan(Scope(1))


def test_equal_trees_are_kept_once() -> None:
    assert list(first_network(topology("line:3"), "legs", 4).trees) == [0]
    assert len(first_network(topology("fat-tree:10"), "legs", 3).trees) == 3


@pytest.mark.parametrize("count", [0, 17])
def test_there_are_as_many_trees_as_an_address_can_name(count: int) -> None:
    with pytest.raises(BadTreeCount):
        first_network(topology("ring:4"), "legs", count)


def test_tables_and_prefix_can_be_given() -> None:
    doc = first_network(topology("line:2"), "lpm", 1, Pipeline(first_table=7, prefix=0xFF3E))
    assert (doc.pipeline.plan, doc.pipeline.first_table) == ("lpm", 7)
    assert Network.of(doc).scope(3, 1) == Scope(3, 1, 0xFF3E)


def test_hosts_come_and_go_without_a_number_changing() -> None:
    first = first_network(topology("line:2"), "legs", 1)
    grown = with_host(first, Host("new", "s1", 9))
    assert grown.pipeline.groups["s1"] == (*first.pipeline.groups["s1"], "new")
    shrunk = without_host(grown, "new")
    assert shrunk.hosts == first.hosts
    assert shrunk.pipeline == grown.pipeline
    moved = with_host(shrunk, Host("h1", "s2", 9))
    assert moved.pipeline.groups["s1"] == grown.pipeline.groups["s1"]
    assert "h1" in moved.pipeline.groups["s2"]


def freed(doc: NetworkDoc) -> NetworkDoc:
    """The network with all unused numbers free."""
    unused = doc.pipeline.unused(topology_of(doc))
    return msgspec.structs.replace(doc, pipeline=doc.pipeline.freed(unused))


def test_free_numbers_are_stored_and_read() -> None:
    doc = freed(without_host(first_network(topology("line:2"), "legs", 1), "h1"))
    assert None in doc.pipeline.tables["s1"]
    assert read_network(encode(doc)) == doc


def test_whoever_missed_that_numbers_were_freed_gives_them_up_first() -> None:
    first = first_network(topology("line:3"), "legs", 1)
    reused = with_host(freed(without_host(first, "h2")), Host("new", "s2", 9))
    last = with_host(reused, Host("h2", "s3", 9))
    before = Network.of(first)
    between, end = steps(last, before)
    assert end == last
    assert between.pipeline == first.pipeline
    assert [host.id for host in between.hosts] == ["h1", "h3"]
    region = Region.parse("01")
    wanted = [
        Partial(Kind.ADVERTISE, "a1", "h1", (region,), (region,)),
        Partial(Kind.SUBSCRIBE, "s1", "h2", (region,)),
        Partial(Kind.SUBSCRIBE, "s2", "new", (region,)),
    ]
    engine = Engine(before.plan(SCOPE))
    engine.load(wanted)
    held = {(s, entry) for s, entries in engine.entries().items() for entry in entries}
    for doc in (between, end):
        network = Network.of(doc, before)
        decision = engine.rewire(network.plan(SCOPE))
        for batch in decision.rounds:
            for switch, ops in batch.items():
                for op in ops:
                    (held.remove if op.change is Change.DELETE else held.add)((switch, op.entry))
        engine.commit(decision)
        before = network
    fresh = Engine(Network.of(last).plan(SCOPE))
    fresh.load(wanted)
    assert engine.entries() == fresh.entries()
    assert held == {(s, entry) for s, entries in fresh.entries().items() for entry in entries}


def test_nothing_is_given_up_if_all_present_legs_keep_their_numbers() -> None:
    first = first_network(topology("line:3"), "legs", 1)
    gone = without_host(first, "h2")
    reused = with_host(freed(gone), Host("new", "s2", 9))
    assert steps(reused, Network.of(gone)) == [reused]
    moved = with_host(gone, Host("new", "s2", 9))
    assert steps(moved, Network.of(first)) == [moved]


def test_what_does_not_fit_is_refused() -> None:
    doc = first_network(topology("line:2"), "legs", 1)
    taken = doc.hosts[0]
    with pytest.raises(PortTaken):
        with_host(doc, Host("new", taken.switch, taken.port))
    with pytest.raises(UnknownHost):
        without_host(doc, "nobody")


def test_engines_go_over_from_one_network_to_the_next() -> None:
    doc = first_network(topology("line:3"), "legs", 1)
    before = Network.of(doc)
    engine = Engine(before.plan(SCOPE))
    region = Region.parse("01")
    engine.load(
        [
            Partial(Kind.ADVERTISE, "a1", "h1", (region,), (region,)),
            Partial(Kind.SUBSCRIBE, "s1", "h2", (region,)),
        ]
    )
    assert engine.entries().keys() == {"s1", "s2"}
    for place in (Host("h2", "s3", 9), Host("h2", "s1", 9)):
        doc = with_host(doc, place)
        after = Network.of(doc, before)
        engine.commit(engine.rewire(after.plan(SCOPE)))
        before = after
    assert engine.entries().keys() == {"s1"}


def test_a_network_that_was_stored_before_switches_had_limits_still_loads() -> None:
    doc = first_network(topology("line:2"), "legs", 1)
    old = msgspec.msgpack.decode(encode(doc))
    pipeline = old[3]
    for name in ("other_traffic", "table_ranges", "group_ranges"):
        del pipeline[name]
    assert all(switch.keys() == {"id", "dpid"} for switch in old[0])
    assert read_network(msgspec.msgpack.encode(old)) == doc


def test_limits_of_switches_are_stored() -> None:
    limits = SwitchLimits(rate=45, tables=(3, 9), groups=(1, 4), capacity=100)
    net = Topology.build([Switch("s1", 1, limits)], [], [Host("h1", "s1", 1)])
    doc = first_network(net, "legs", 1)
    assert read_network(encode(doc)) == doc
    assert topology_of(read_network(encode(doc))).switch("s1").limits == limits
