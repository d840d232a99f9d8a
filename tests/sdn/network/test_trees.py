import pickle
from collections import Counter, deque
from collections.abc import Collection
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdn.network.topologies import topology
from sdn.network.topology import (
    Host,
    Link,
    Switch,
    ToHost,
    Topology,
    ToSwitch,
    UnknownHost,
    UnknownSwitch,
)
from sdn.network.trees import BadTreeCount, NotATree, Tree, legs, spanning_tree, spanning_trees
from tests.strategies import topologies

T = TypeVar("T")


def distances(net: Topology, start: str, links: Collection[Link]) -> dict[str, int]:
    """Plain breadth-first search over some of the links."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        switch = queue.popleft()
        for port, peer, _ in net.neighbours(switch):
            if net.at(switch, port) in links and peer not in found:
                found[peer] = found[switch] + 1
                queue.append(peer)
    return found


def components(net: Topology, links: Collection[Link]) -> int:
    left = {switch.id for switch in net.switches}
    count = 0
    while left:
        left -= distances(net, min(left), links).keys()
        count += 1
    return count


def cost(net: Topology, tree: Tree) -> tuple[int, int]:
    depths = [tree.depth(switch.id) for switch in net.switches]
    return max(depths), sum(depths)


def follow(net: Topology, publisher: str, walk: tuple[tuple[str, ToSwitch | ToHost], ...]) -> str:
    """Where an event ends that leaves each switch by the leg given for it."""
    here = net.host(publisher).switch
    for switch, leg in walk[:-1]:
        assert switch == here
        assert isinstance(leg, ToSwitch)
        link = net.at(here, leg.port)
        assert isinstance(link, Link)
        here = link.b if link.a == here else link.a
    switch, leg = walk[-1]
    assert switch == here
    assert isinstance(leg, ToHost)
    host = net.host(leg.host)
    assert net.at(here, host.port) == host
    return host.id


@given(topologies())
def test_a_tree_spans_all_switches_without_a_cycle(net: Topology) -> None:
    tree = spanning_tree(net)
    assert len(tree.links) == len(net.switches) - 1
    assert tree.links <= set(net.links)
    assert components(net, tree.links) == 1


@given(topologies(), st.data())
def test_a_tree_of_unused_links_has_shortest_paths_from_its_root(
    net: Topology, data: st.DataObject
) -> None:
    root = data.draw(st.none() | st.sampled_from([switch.id for switch in net.switches]))
    tree = spanning_tree(net, root=root)
    assert root in (None, tree.root)
    shortest = distances(net, tree.root, net.links)
    assert {switch.id: tree.depth(switch.id) for switch in net.switches} == shortest


@given(topologies(), st.integers(0, 2))
def test_no_other_root_gives_a_shallower_tree(net: Topology, before: int) -> None:
    used: Counter[Link] = Counter()
    for tree in spanning_trees(net, before) if before else ():
        used.update(tree.links)
    chosen = spanning_tree(net, used)
    costs = {s.id: cost(net, spanning_tree(net, used, s.id)) for s in net.switches}
    assert cost(net, chosen) == min(costs.values())
    # Of equally good roots it is the first.
    assert chosen.root == min(costs, key=costs.__getitem__)


@given(topologies(), st.data())
def test_a_path_is_the_one_simple_path_in_the_tree(net: Topology, data: st.DataObject) -> None:
    tree = spanning_trees(net, 2)[data.draw(st.integers(0, 1))]
    switches = st.sampled_from([switch.id for switch in net.switches])
    a, b = data.draw(switches), data.draw(switches)
    path = tree.path(a, b)
    assert (path[0], path[-1]) == (a, b)
    assert len(set(path)) == len(path)
    # In a tree there is only one simple path, so its length is the distance.
    assert len(path) - 1 == distances(net, a, tree.links)[b]
    assert tree.path(b, a) == path[::-1]


@given(topologies(), st.data())
def test_each_hop_leads_over_a_link_of_the_tree_to_the_next(
    net: Topology, data: st.DataObject
) -> None:
    tree = spanning_tree(net)
    switches = st.sampled_from([switch.id for switch in net.switches])
    a, b = data.draw(switches), data.draw(switches)
    path, hops = tree.path(a, b), tree.hops(a, b)
    assert path[:-1] == tuple(switch for switch, _ in hops)
    for (switch, port), following in zip(hops, path[1:], strict=True):
        link = net.at(switch, port)
        assert link in tree.links
        assert isinstance(link, Link)
        assert {link.a, link.b} == {switch, following}


@given(topologies())
def test_the_second_tree_reuses_as_few_links_as_any_can(net: Topology) -> None:
    first, second = spanning_trees(net, 2)
    rest = set(net.links) - first.links
    assert len(first.links & second.links) == components(net, rest) - 1


@given(topologies(), st.data())
def test_least_used_links_are_taken_at_every_level_of_use(
    net: Topology, data: st.DataObject
) -> None:
    used = {link: data.draw(st.integers(0, 3)) for link in net.links}
    tree = spanning_tree(net, used)
    for limit in range(4):
        below = {link for link in net.links if used[link] < limit}
        assert len(tree.links - below) == components(net, below) - 1


@given(topologies(), st.randoms(use_true_random=False))
def test_the_same_network_gives_the_same_trees(net: Topology, random: Random) -> None:
    def shuffled(parts: Collection[T]) -> list[T]:
        return random.sample(list(parts), len(parts))

    again = Topology.build(shuffled(net.switches), shuffled(net.links), shuffled(net.hosts))
    assert spanning_trees(again, 3) == spanning_trees(net, 3)


@given(topologies())
def test_legs_lead_from_the_publisher_to_the_subscriber(net: Topology) -> None:
    for tree in spanning_trees(net, 2):
        for publisher in net.hosts:
            for subscriber in net.hosts:
                walk = legs(net, tree, publisher.id, subscriber.id)
                assert follow(net, publisher.id, walk) == subscriber.id
                assert len(walk) == len(tree.path(publisher.switch, subscriber.switch))


@given(topologies())
def test_a_tree_can_be_built_again_from_its_links_and_root(net: Topology) -> None:
    tree = spanning_tree(net)
    again = Tree.build(tree.links, tree.root)
    assert again == tree
    assert [again.depth(s.id) for s in net.switches] == [tree.depth(s.id) for s in net.switches]
    assert pickle.loads(pickle.dumps(tree)) == tree  # noqa: S301


def test_legs_between_hosts_of_a_line() -> None:
    net = topology("line:3")
    walk = legs(net, spanning_tree(net), "h1", "h3")
    assert walk == (("s1", ToSwitch(1)), ("s2", ToSwitch(2)), ("s3", ToHost("h3")))


def test_hosts_of_one_switch_are_one_leg_apart() -> None:
    net = topology("tree:1,2")
    assert legs(net, spanning_tree(net), "h1", "h2") == (("s1", ToHost("h2")),)


def test_legs_follow_a_host_that_moved() -> None:
    net = topology("line:3").with_host(Host("h3", "s1", 9))
    assert legs(net, spanning_tree(net), "h1", "h3") == (("s1", ToHost("h3")),)


def test_a_tree_of_one_switch_has_no_links() -> None:
    tree = spanning_tree(topology("line:1"))
    assert (tree.links, tree.root) == (frozenset(), "s1")
    assert tree.path("s1", "s1") == ("s1",)
    assert tree.hops("s1", "s1") == ()


def test_the_root_is_the_centre() -> None:
    assert spanning_tree(topology("line:5")).root == "s3"
    assert spanning_tree(topology("tree:3,2")).root == "s1"
    assert spanning_tree(topology("fat-tree:10")).root == "s1"


def test_equal_choices_fall_to_the_lower_number() -> None:
    # By letters s10 would come before s2.
    hub = [Link("s1", n, f"s{n}", 1) for n in (2, 10)]
    edge = [Link(f"s{n}", 2, "s11", n) for n in (2, 10)]
    net = Topology.build([Switch(f"s{n}", n) for n in (1, 2, 10, 11)], hub + edge, [])
    assert spanning_tree(net, root="s1").path("s1", "s11") == ("s1", "s2", "s11")


def test_of_parallel_links_the_lowest_port_is_taken_first() -> None:
    links = [Link("s1", n, "s2", n) for n in (3, 1, 2)]
    net = Topology.build([Switch("s1", 1), Switch("s2", 2)], links, [])
    trees = spanning_trees(net, 4)
    assert [link.a_port for tree in trees for link in tree.links] == [1, 2, 3, 1]


def test_the_second_tree_of_a_mesh_shares_just_the_link_it_must() -> None:
    names = [f"s{n}" for n in range(1, 7)]
    pairs = [(a, b) for a in names for b in names if a < b]
    links = [Link(a, int(b[1:]), b, int(a[1:])) for a, b in pairs]
    net = Topology.build([Switch(name, int(name[1:])) for name in names], links, [])
    # The first is a star and uses up all links of its centre; the second needs one of them.
    first, second = spanning_trees(net, 2)
    assert len(first.links & second.links) == 1


def test_trees_repeat_where_there_is_no_other() -> None:
    first, second = spanning_trees(topology("line:4"), 2)
    assert first == second


def test_the_second_tree_of_the_testbed_shares_two_links_of_nine() -> None:
    first, second = spanning_trees(topology("fat-tree:10"), 2)
    assert len(first.links) == len(second.links) == 9
    assert len(first.links & second.links) == 2


@pytest.mark.parametrize(
    ("name", "root", "depth"),
    [("line:601", "s301", 300), ("tree:9,2", "s1", 8), ("ring:300", None, 150)],
)
def test_the_centre_of_a_large_network_is_found(name: str, root: str | None, depth: int) -> None:
    net = topology(name)
    tree = spanning_tree(net)
    assert root in (None, tree.root)
    assert cost(net, tree)[0] == depth


def test_links_that_are_used_but_not_there_do_not_matter() -> None:
    net = topology("ring:4")
    assert spanning_tree(net, {Link("x", 1, "y", 1): 5}) == spanning_tree(net)


def test_what_is_not_there_is_unknown() -> None:
    net = topology("line:2")
    tree = spanning_tree(net)
    with pytest.raises(UnknownSwitch):
        spanning_tree(net, root="s9")
    with pytest.raises(UnknownSwitch, match="'s9'"):
        tree.path("s1", "s9")
    with pytest.raises(UnknownSwitch):
        tree.hops("s9", "s9")
    with pytest.raises(UnknownSwitch):
        tree.depth("s9")
    with pytest.raises(UnknownHost):
        legs(net, tree, "h1", "h9")


@pytest.mark.parametrize(
    ("links", "root"),
    [
        ([Link("s1", 1, "s2", 1), Link("s1", 2, "s2", 2)], "s1"),
        ([Link("s1", 1, "s2", 1), Link("s3", 1, "s4", 1)], "s1"),
        ([Link("s1", 1, "s2", 1)], "s3"),
        ([Link("s1", 1, "s1", 2)], "s1"),
    ],
)
def test_links_that_are_no_tree_are_refused(links: list[Link], root: str) -> None:
    with pytest.raises(NotATree, match=f"root {root}"):
        Tree.build(links, root)


@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_tree_must_be_asked_for(count: int) -> None:
    with pytest.raises(BadTreeCount):
        spanning_trees(topology("line:2"), count)
