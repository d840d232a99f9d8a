"""How a network grows as it is found: trees stay trees, and keep their numbers while they grow."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from configurators.engine.partials import Request
from configurators.state import discovered
from configurators.state.discovered import Found, with_better_trees, with_found
from configurators.state.healing import coming, next_network
from configurators.state.network import (
    Network,
    first_network,
    read_network,
    steps,
    topology_of,
    tree_of,
    undiscovered_network,
    with_host,
)
from configurators.store.documents import encode
from configurators.store.model import Lost, NetworkDoc
from dzflow.region import Region
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, Switch, Topology
from sdn.network.trees import Tree
from tests.configurators.state.test_healing import losses
from tests.plant import Plant
from tests.strategies import topologies

GRACE = 5.0
EMPTY = undiscovered_network("legs", 1)


def dpids(*numbers: int) -> Found:
    return Found(switches=frozenset(numbers))


def wired(doc: NetworkDoc, *links: Link) -> NetworkDoc:
    return with_found(doc, Found(links=frozenset(links)))


def installed(doc: NetworkDoc, now: float = 1000.0) -> NetworkDoc:
    """The network when everybody has followed and time has passed."""
    while True:
        following = next_network(doc, doc.lost, True, now, GRACE)
        if following == doc and not doc.retired:
            return doc
        doc, now = following, now + GRACE


def trees_of(doc: NetworkDoc) -> dict[int, Tree]:
    return {number: tree_of(tree) for number, tree in doc.trees.items()}


def check(before: NetworkDoc, after: NetworkDoc) -> None:
    """Trees are trees that reach all switches, and continue those of the same number."""
    for number, tree in after.trees.items():
        made = tree_of(tree)  # which raises if it is none
        assert all(made.depth(switch.id) >= 0 for switch in after.switches)
        if number in before.trees:
            assert made.continues(tree_of(before.trees[number]))
    # Whoever missed the steps in between comes along, too.
    network = Network.of(before)
    for step in steps(after, network):
        network = Network.of(step, network)
    assert read_network(encode(after)) == after


def test_nothing_is_known_at_first_and_a_switch_alone_is_a_network() -> None:
    assert Network.of(EMPTY).trees == {}
    doc = with_found(EMPTY, dpids(1))
    assert doc.switches == (Switch("s1", 1),)
    assert tree_of(doc.trees[0]).depth("s1") == 0
    assert with_found(doc, dpids(1)) is doc


def test_a_declared_network_does_not_change() -> None:
    doc = first_network(topology("line:2"), "legs", 1)
    found = Found(frozenset({7}), frozenset({Link("s1", 8, "s2", 8)}))
    assert with_found(doc, found) is doc


def test_switches_are_named_by_their_datapath_ids() -> None:
    doc = with_found(EMPTY, dpids(7, 0xA0B1C2D3E4F5))
    assert [switch.id for switch in doc.switches] == ["dpid-0000a0b1c2d3e4f5", "s7"]
    taken = replace(EMPTY, switches=(Switch("s7", 9),))
    assert Switch("dpid-0000000000000007", 7) in with_found(taken, dpids(7)).switches


def test_no_more_switches_join_than_are_allowed() -> None:
    doc = with_found(EMPTY, dpids(*range(1, 2 * discovered.MAX_SWITCHES)))
    assert len(doc.switches) == discovered.MAX_SWITCHES
    assert with_found(doc, dpids(2 * discovered.MAX_SWITCHES)) is doc


def test_a_link_to_a_switch_that_is_not_known_or_at_the_port_of_a_host_does_not_join() -> None:
    doc = with_host(with_found(EMPTY, dpids(1, 2)), Host("h1", "s1", 1))
    assert wired(doc, Link("s1", 2, "s3", 1)) is doc
    assert wired(doc, Link("s1", 1, "s2", 1)) is doc


def test_a_link_takes_the_place_of_lost_ones_only() -> None:
    old, new = Link("s1", 1, "s2", 1), Link("s1", 1, "s2", 5)
    doc = wired(with_found(EMPTY, dpids(1, 2)), old)
    assert wired(doc, new) is doc, "the old one is there"
    lost = next_network(doc, Lost((), (old,)), True, 1000.0, GRACE)
    assert wired(lost, new) is lost, "trees still use the old one"
    moved = wired(installed(lost), new)
    assert (moved.links, moved.lost) == ((new,), Lost())
    assert not tree_of(moved.trees[max(moved.trees)]).more_roots


def test_a_link_for_which_a_switch_has_no_table_does_not_join() -> None:
    small = replace(EMPTY, pipeline=replace(EMPTY.pipeline, table_count=4))
    links = [Link("s1", port, "s2", port) for port in (1, 2, 3)]
    doc = wired(with_found(small, dpids(1, 2)), *links)
    assert doc.links == tuple(links[:2])


def test_longer_trees_are_replaced_under_free_numbers_without_a_gap() -> None:
    ring = topology("ring:8")
    doc = with_found(EMPTY, dpids(*range(1, 9)))
    # Found in an unlucky order: the tree becomes a line with the hosts at its ends.
    for link in ring.links:
        if {link.a, link.b} != {"s1", "s8"}:
            doc = wired(doc, link)
    doc = wired(doc, *ring.links)
    for name in ("s1", "s8"):
        doc = with_host(doc, Host(f"h-{name}", name, 9))
    better = with_better_trees(doc, 1000.0)
    assert better.usable == {0}
    assert coming(better) == {1}
    assert better.outdone == (0,)
    after = installed(better)
    assert list(after.trees) == [1]
    assert after.outdone == ()
    assert len(tree_of(after.trees[1]).path("s1", "s8")) == 2
    assert with_better_trees(after, 2000.0) is after


def test_when_a_link_fails_while_better_trees_come_the_former_ones_stay() -> None:
    ring = topology("ring:4")
    doc = with_found(EMPTY, dpids(1, 2, 3, 4))
    for link in ring.links[1:]:
        doc = wired(doc, link)
    doc = wired(doc, *ring.links)
    for host in (Host("h1", ring.links[0].a, 9), Host("h2", ring.links[0].b, 9)):
        doc = with_host(doc, host)
    better = with_better_trees(doc, 1000.0)
    assert better.outdone == (0,)
    failed = next_network(better, Lost((), (ring.links[0],)), False, 1000.0, GRACE)
    assert failed.outdone == ()
    assert failed.usable == {0}
    assert list(failed.trees) == [0]


def test_as_many_trees_come_as_are_wanted_once_there_are_links_for_them() -> None:
    ring = topology("ring:4")
    doc = with_found(undiscovered_network("legs", 2), dpids(1, 2, 3, 4))
    doc = wired(doc, *ring.links[1:])
    assert len(doc.trees) == 1
    doc = installed(with_better_trees(wired(doc, *ring.links), 1000.0))
    assert len(doc.usable) == 2


@settings(max_examples=60, deadline=None)
@given(st.data(), topologies(), st.integers(1, 3))
def test_in_whatever_order_a_network_is_found_it_is_whole_at_the_end(
    data: st.DataObject, made: Topology, trees: int
) -> None:
    doc = undiscovered_network("legs", trees)
    # Switches of these topologies are called as they are when they are found.
    parts = [dpids(switch.dpid) for switch in made.switches]
    parts += [Found(links=frozenset({link})) for link in made.links]
    now = 1000.0
    for part in data.draw(st.permutations(parts)):
        changed = with_found(doc, part)
        check(doc, changed)
        doc = changed
        if data.draw(st.booleans()) and doc.switches:
            lost = data.draw(losses(doc))
            changed = next_network(doc, lost, data.draw(st.booleans()), now, GRACE)
            check(doc, changed)
            doc = with_better_trees(changed, now)
            check(changed, doc)
            now += data.draw(st.sampled_from([0.0, GRACE]))
    doc = wired(doc, *made.links)  # those of which the ends came later
    doc = installed(next_network(doc, Lost(), True, now, GRACE))
    for _ in range(2):  # trees that are the same go first
        doc = installed(with_better_trees(doc, 1000.0))
    assert (doc.switches, doc.links) == (made.switches, made.links)
    assert doc.usable == doc.trees.keys()
    assert not any(tree.more_roots for tree in doc.trees.values())
    # Trees that have grown may leave room for one more than those that are chosen at once.
    at_once = len(first_network(topology_of(doc), "legs", trees).trees)
    assert at_once <= len(doc.trees) <= trees
    assert len({frozenset(tree.links) for tree in doc.trees.values()}) == len(doc.trees)


@settings(max_examples=30, deadline=None)
@given(st.data(), topologies(max_switches=6, max_hosts=4), st.integers(1, 2))
def test_events_are_never_interrupted_doubled_or_looped_while_a_network_grows(
    data: st.DataObject, made: Topology, trees: int
) -> None:
    everyone = dpids(*(switch.dpid for switch in made.switches))
    doc = with_found(undiscovered_network("legs", trees), everyone)
    for host in made.hosts:
        doc = with_host(doc, host)
    plant = Plant(topology_of(doc), "legs", trees_of(doc))
    everything = (Region(0, 0),)
    for host in doc.hosts:
        plant.add(Request(True, f"a-{host.id}", host.id, everything))
        plant.add(Request(False, f"s-{host.id}", host.id, everything))
    now = 1000.0
    places = {host.id: host.switch for host in made.hosts}
    for link in data.draw(st.permutations(made.links)):
        following = wired(doc, link)
        if data.draw(st.booleans()):
            following = next_network(with_better_trees(following, now), doc.lost, True, now, GRACE)
            now += GRACE
        told, before = doc.usable & following.trees.keys(), trees_of(doc)

        def watch(told: frozenset[int] = frozenset(told), before: dict[int, Tree] = before) -> None:
            for number in told:
                for name, switch in places.items():
                    reached = plant.reached(name, 0, number)
                    joined = {
                        other
                        for other, there in places.items()
                        if other != name and before[number].joins(switch, there)
                    }
                    assert joined <= reached, "what was reached before is reached all the time"

        plant.watch = watch
        plant.rewire(topology_of(following), trees_of(following))
        watch()
        doc = following
    plant.check()
    for host in doc.hosts:
        others = {other.id for other in doc.hosts} - {host.id}
        assert plant.reached(host.id, 0, max(doc.usable)) == others
