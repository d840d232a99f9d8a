"""How the network goes on when something is lost: trees stay trees, numbers keep their meaning."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from configurators.engine.partials import Request
from configurators.state.healing import coming, cut_off, next_network
from configurators.state.network import Network, first_network, steps, tree_of
from configurators.store.model import Lost, NetworkDoc
from dzflow.region import Region
from sdn.network.topologies import topology
from sdn.network.topology import Link, Switch, Topology
from tests.plant import Plant
from tests.strategies import topologies

GRACE = 5.0


def parts(doc: NetworkDoc, lost: Lost) -> dict[str, frozenset[str]]:
    """With whom each switch hangs together; one that is lost, with itself."""
    found = {switch.id: frozenset([switch.id]) for switch in doc.switches}
    for link in doc.links:
        if link not in lost.links and not {link.a, link.b} & set(lost.switches):
            both = found[link.a] | found[link.b]
            found |= dict.fromkeys(both, both)
    return found


def settled(doc: NetworkDoc, lost: Lost, now: float) -> NetworkDoc:
    """The network when everybody has followed and time has passed."""
    for _ in range(10):
        following = next_network(doc, lost, True, now, GRACE)
        if following == doc and not doc.retired:
            return doc
        check_step(doc, following)
        doc = following
        now += GRACE
    raise AssertionError("it does not settle")


def check_step(before: NetworkDoc, after: NetworkDoc) -> None:
    everyone = {switch.id for switch in after.switches}
    for number, tree in after.trees.items():
        made = tree_of(tree)  # which raises if it is none
        assert all(made.depth(switch) >= 0 for switch in everyone)
        if number in before.trees:
            assert before.trees[number] == tree, "a number keeps its meaning"
        else:
            joined = parts(after, after.lost)
            for a in everyone:
                for b in everyone:
                    assert made.joins(a, b) == (b in joined[a])
            gone = set(after.lost.links)
            assert not gone & set(tree.links)
            ends = {end for link in tree.links for end in (link.a, link.b)}
            assert not ends & set(after.lost.switches)
    assert after.usable <= after.trees.keys()
    assert after.usable or not before.usable
    assert not after.usable & after.retired.keys()
    # Nobody uses a tree that has not been there, and stays untouched, for a while.
    assert after.usable <= before.trees.keys()
    for number in before.trees.keys() - after.trees.keys():
        assert number in before.retired or number in coming(before)


@st.composite
def losses(draw: st.DrawFn, doc: NetworkDoc) -> Lost:
    switches = draw(st.lists(st.sampled_from([s.id for s in doc.switches]), unique=True))
    links: list[Link] = []
    if doc.links:
        links = draw(st.lists(st.sampled_from(doc.links), unique=True))
    return Lost(tuple(sorted(switches)), tuple(sorted(links, key=str)))


def test_a_new_tree_goes_when_the_link_is_back_before_it_is_used() -> None:
    links = (Link("s1", 1, "s2", 2), Link("s1", 2, "s2", 1))
    made = Topology.build((Switch("s1", 1), Switch("s2", 2)), links, ())
    doc = first_network(made, "legs", 1)
    (tree,) = doc.trees.values()
    healing = next_network(doc, Lost((), tree.links), False, 1000.0, GRACE)
    assert len(healing.trees) == 2
    back = next_network(healing, Lost(), False, 1001.0, GRACE)  # nobody has installed it yet
    assert settled(back, Lost(), 1001.0).trees == doc.trees


@settings(max_examples=150, deadline=None)
@given(st.data(), topologies(), st.integers(1, 3))
def test_whatever_is_lost_trees_stay_trees_and_reach_all_that_can_be_reached(
    data: st.DataObject, made: Topology, trees: int
) -> None:
    doc = first_network(made, "legs", trees)
    network = Network.of(doc)
    now = 1000.0
    for _ in range(data.draw(st.integers(1, 6))):
        lost = data.draw(losses(doc))
        for _ in range(data.draw(st.integers(1, 3))):
            before = doc
            doc = next_network(doc, lost, data.draw(st.booleans()), now, GRACE)
            check_step(before, doc)
            now += data.draw(st.sampled_from([0.0, 1.0, GRACE]))
        if data.draw(st.booleans()):  # a configurator that has missed some in between
            for step in steps(doc, network):
                network = Network.of(step, network)
            assert network.trees == {n: tree_of(tree) for n, tree in doc.trees.items()}
    doc = settled(doc, lost, now)
    assert set(doc.usable) == set(doc.trees)
    assert 1 <= len(doc.trees) <= max(trees, 1)
    joined = parts(doc, lost)
    for tree in map(tree_of, doc.trees.values()):
        for one in doc.hosts:
            for other in doc.hosts:
                assert tree.joins(one.switch, other.switch) == (other.switch in joined[one.switch])
    largest = max(map(len, joined.values()))
    for host in doc.hosts:
        if host.switch in lost.switches or len(joined[host.switch]) < largest:
            assert host.id in cut_off(doc)
    again = settled(doc, Lost(), now + 100)
    assert not cut_off(again)
    assert all(not tree.more_roots for tree in again.trees.values())
    assert len(again.trees) == len(first_network(made, "legs", trees).trees)


@settings(max_examples=60, deadline=None)
@given(st.data(), topologies(), st.integers(1, 2))
def test_events_are_never_interrupted_doubled_or_looped_on_the_way_to_another_tree(
    data: st.DataObject, made: Topology, trees: int
) -> None:
    doc = first_network(made, "legs", trees)
    plant = Plant(made, "legs")
    plant.rewire(made, {n: tree_of(tree) for n, tree in doc.trees.items()})
    everything = (Region(0, 0),)
    for host in made.hosts:
        plant.add(Request(True, f"a-{host.id}", host.id, everything))
        plant.add(Request(False, f"s-{host.id}", host.id, everything))
    lost = data.draw(losses(doc))
    everybody = {host.id for host in made.hosts}
    for now in (0.0, 1.0, 2.0, 20.0, 21.0):
        following = next_network(doc, lost, True, now, GRACE)
        # Publishers write what they were told last; those trees stand all the time.
        told = doc.usable & following.trees.keys()
        assert told
        ways = {
            (number, host): {
                other.id
                for other in made.hosts
                if other.id != host
                and plant.trees[number].joins(made.host(host).switch, other.switch)
            }
            for number in told
            for host in everybody
        }

        def watch(ways: dict[tuple[int, str], set[str]] = ways) -> None:
            for (number, host), reached in ways.items():
                assert plant.reached(host, 0, number) == reached

        plant.watch = watch
        plant.rewire(made, {n: tree_of(tree) for n, tree in following.trees.items()})
        watch()
        doc = following
    plant.check()


def test_a_cut_link_is_gone_round_and_publishers_are_told_when_entries_stand() -> None:
    doc = first_network(topology("ring:4"), "legs", 1)
    cut = doc.trees[0].links[0]
    lost = Lost(links=(cut,))
    first = next_network(doc, lost, True, 10.0, GRACE)
    assert set(first.trees) == {0, 1}
    assert first.usable == {0}
    assert cut not in first.trees[1].links
    assert next_network(first, lost, False, 11.0, GRACE) == first
    second = next_network(first, lost, True, 12.0, GRACE)
    assert second.usable == {1}
    assert second.retired == {0: 12.0}
    assert next_network(second, lost, True, 16.9, GRACE) == second
    third = next_network(second, lost, True, 17.0, GRACE)
    assert set(third.trees) == {1}
    # When the link is back, the tree that does without it stays: nothing is moved for nothing.
    assert next_network(third, Lost(), True, 18.0, GRACE).trees == third.trees


def test_where_another_tree_is_whole_the_broken_one_is_left_at_once() -> None:
    doc = first_network(topology("ring:4"), "legs", 2)
    cut = next(link for link in doc.trees[0].links if link not in doc.trees[1].links)
    lost = Lost(links=(cut,))
    after = next_network(doc, lost, False, 10.0, GRACE)
    assert after.usable == {1}
    assert after.retired == {0: 10.0}
    assert set(after.trees) == {0, 1}, "a ring without a link has one tree only"
    back = settled(after, Lost(), 20.0)
    assert len(back.usable) == 2
    assert 0 not in back.trees


def test_a_clock_that_jumps_back_does_not_keep_old_trees() -> None:
    doc = first_network(topology("ring:4"), "legs", 1)
    lost = Lost(links=(doc.trees[0].links[0],))
    doc = next_network(next_network(doc, lost, True, 1e9, GRACE), lost, True, 1e9, GRACE)
    assert doc.retired
    assert not next_network(doc, lost, True, 5.0, GRACE).retired


def test_hosts_that_are_cut_off_say_why() -> None:
    doc = settled(first_network(topology("line:5"), "legs", 1), Lost(("s2",)), 0.0)
    reasons = cut_off(doc)
    assert reasons.keys() == {"h1", "h2"}
    assert "s2, which is lost" in reasons["h2"]
    assert "no path" in reasons["h1"]


def test_numbers_are_given_in_turn() -> None:
    doc = first_network(topology("ring:4"), "legs", 1)
    given: list[int] = [0]
    for n, link in enumerate(doc.links * 10):
        before = doc
        doc = settled(doc, Lost(links=(link,)), 100.0 * n)
        given += sorted(doc.trees.keys() - before.trees.keys())
    assert len(given) > 20
    assert all(after == (before + 1) % 16 for before, after in pairwise(given))
