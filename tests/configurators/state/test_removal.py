"""What is gone for good is removed from a discovered network, if nothing hangs on it."""

import pytest
from msgspec.structs import replace

from configurators.state.discovered import Found, with_found
from configurators.state.healing import next_network
from configurators.state.network import (
    Network,
    first_network,
    read_network,
    steps,
    undiscovered_network,
    with_host,
)
from configurators.state.removal import Described, StillNeeded, without_link, without_switch
from configurators.store.documents import encode
from configurators.store.model import Lost, NetworkDoc
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link

RING = topology("ring:3")
FOUND = Found(frozenset({1, 2, 3}), frozenset())
LINK = RING.links[0]


def ring() -> NetworkDoc:
    doc = with_found(undiscovered_network("legs", 1), FOUND)
    return with_found(doc, Found(links=frozenset(RING.links)))


def after_loss(doc: NetworkDoc, lost: Lost) -> NetworkDoc:
    """The network when trees go round what is lost."""
    for now in (0.0, 10.0, 20.0):
        doc = next_network(doc, lost, True, now, 5.0)
    return doc


def check(before: NetworkDoc, after: NetworkDoc) -> None:
    assert read_network(encode(after)) == after
    network = Network.of(before)
    for step in steps(after, network):
        network = Network.of(step, network)


def test_a_lost_link_is_removed_and_found_again_if_it_is_still_there() -> None:
    doc = after_loss(ring(), Lost((), (LINK,)))
    after = without_link(doc, LINK)
    check(doc, after)
    assert LINK not in after.links
    assert after.lost == Lost()
    assert after.trees == doc.trees
    assert LINK in with_found(after, Found(links=frozenset({LINK}))).links


def test_a_link_that_is_there_or_that_trees_use_is_not_removed() -> None:
    doc = ring()
    with pytest.raises(StillNeeded, match=r"not lost.*trees use it: 0"):
        without_link(doc, LINK)
    used = replace(doc, lost=Lost((), (LINK,)))
    with pytest.raises(StillNeeded, match="trees use it: 0"):
        without_link(used, LINK)


def test_a_lost_switch_is_removed_with_its_links() -> None:
    doc = after_loss(ring(), Lost(("s3",)))
    after = without_switch(doc, "s3")
    check(doc, after)
    assert [switch.id for switch in after.switches] == ["s1", "s2"]
    assert after.links == (Link("s1", 1, "s2", 1),)
    assert after.lost == Lost()
    assert all("s3" not in (tree.root, *tree.more_roots) for tree in after.trees.values())


def test_a_switch_with_hosts_or_that_is_there_is_not_removed() -> None:
    doc = with_host(ring(), Host("h3", "s3", 9))
    with pytest.raises(StillNeeded, match=r"not lost.*hosts are declared there: h3.*trees lead"):
        without_switch(doc, "s3")
    lost = after_loss(doc, Lost(("s3",)))
    with pytest.raises(StillNeeded, match="hosts are declared there: h3"):
        without_switch(lost, "s3")


def test_the_last_switch_can_be_removed_and_others_join() -> None:
    doc = with_found(undiscovered_network("legs", 1), Found(frozenset({1})))
    gone = without_switch(after_loss(doc, Lost(("s1",))), "s1")
    assert gone.switches == ()
    assert gone.trees == {}
    check(doc, gone)
    again = with_found(gone, Found(frozenset({2})))
    assert again.usable == again.trees.keys() != set()


def test_a_described_network_keeps_its_switches_and_links() -> None:
    doc = first_network(RING, "legs", 1)
    with pytest.raises(Described):
        without_switch(doc, "s1")
    with pytest.raises(Described):
        without_link(doc, LINK)
