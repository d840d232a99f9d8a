"""An operator adds switches and links to a discovered network, changes them, and undoes it."""

from typing import Any

import pytest
from msgspec.structs import replace

from configurators.state.declared import BadDeclaration, with_link, with_switch
from configurators.state.discovered import Found, with_found
from configurators.state.healing import next_network
from configurators.state.network import (
    Network,
    first_network,
    read_network,
    steps,
    topology_of,
    undiscovered_network,
    with_host,
)
from configurators.state.removal import Described, StillNeeded, without_link, without_switch
from configurators.store.documents import encode
from configurators.store.model import Lost, NetworkDoc
from sdn.network.switch_limits import AS_ALL, SwitchLimits
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link
from sdn.tables.pipeline import OutOfTables

LINE = topology("line:3")
HIDDEN = Link("s1", 9, "s3", 9)
NOTHING = Lost()
EVERYBODY = ("s1", "s2", "s3")


def line() -> NetworkDoc:
    doc = with_found(undiscovered_network("legs", 1), Found(frozenset({1, 2, 3})))
    return with_found(doc, Found(links=frozenset(LINE.links)))


def put(doc: NetworkDoc, id: str, dpid: int | None = None, **more: Any) -> NetworkDoc:
    known: dict[str, Any] = {"limits": AS_ALL, "label": "", "connected": EVERYBODY}
    return with_switch(doc, id, dpid, **known | more)


def check(before: NetworkDoc, after: NetworkDoc) -> None:
    assert read_network(encode(after)) == after
    network = Network.of(before)
    for step in steps(after, network):
        network = Network.of(step, network)


def later(doc: NetworkDoc, lost: Lost = NOTHING) -> NetworkDoc:
    """The network when everybody has followed and time has passed."""
    for now in (0.0, 10.0, 20.0):
        following = next_network(doc, lost, True, now, 5.0)
        check(doc, following)
        doc = following
    return doc


def test_a_switch_that_is_not_connected_yet_is_lost_until_it_is() -> None:
    doc = line()
    declared = put(doc, "edge", 7, label="rack 3", limits=SwitchLimits(rate=45))
    check(doc, declared)
    assert topology_of(declared).switch("edge").limits.rate == 45
    assert declared.lost == Lost(("edge",))
    assert with_found(declared, Found(frozenset({7}))) == declared, "it is known by its id"
    there = with_found(declared, Found(links=frozenset({Link("s3", 8, "edge", 1)})))
    assert all(len(tree.links) == 2 for tree in there.trees.values())
    grown = later(there)
    assert {n: len(tree.links) for n, tree in grown.trees.items()} == {0: 3}, "under its number"
    assert without_switch(declared, "edge").switches == doc.switches


def test_a_label_and_limits_change_nothing_else() -> None:
    doc = line()
    changed = put(doc, "s2", label="middle", limits=SwitchLimits(rate=45, capacity=100))
    check(doc, changed)
    assert replace(changed, switches=doc.switches) == doc
    assert put(changed, "s2") == doc, "what is left out gets its default"


@pytest.mark.parametrize(
    ("id", "dpid", "limits", "field", "text"),
    [
        ("s9", None, AS_ALL, "dpid", "is new"),
        ("s9", 2, AS_ALL, "dpid", "s2 has datapath id 0x2 already"),
        ("s1", 2, AS_ALL, "dpid", "s2 has datapath id 0x2 already"),
        ("s9", 2**64, AS_ALL, "dpid", "outside"),
        ("s2", 2, SwitchLimits(tables=(0, 2)), "tables", "s2 has 2 legs but tables for 1"),
    ],
)
def test_a_switch_that_does_not_fit_is_refused_and_the_field_named(
    id: str, dpid: int | None, limits: SwitchLimits, field: str, text: str
) -> None:
    with pytest.raises(BadDeclaration, match=text) as refused:
        put(line(), id, dpid, limits=limits)
    assert refused.value.field == field


def test_a_switch_is_replaced_by_another_one_only_while_it_is_not_connected() -> None:
    doc = line()
    with pytest.raises(StillNeeded, match="s3 is connected with datapath id 0x3"):
        put(doc, "s3", 33)
    changed = put(doc, "s3", 33, connected=("s1", "s2"))
    check(doc, changed)
    assert topology_of(changed).switch("s3").dpid == 33
    assert changed.trees == doc.trees


def test_entries_do_not_move_to_other_tables() -> None:
    with pytest.raises(StillNeeded, match="tables"):
        put(line(), "s2", limits=SwitchLimits(tables=(10, 100)))
    doc = put(line(), "s9", 9)
    assert put(doc, "s9", limits=SwitchLimits(tables=(10, 100))).lost == doc.lost


def test_a_link_that_discovery_cannot_find_joins_and_is_found_good_as_long_as_it_is_up() -> None:
    doc = line()
    changed = with_link(doc, HIDDEN, probed=False, connected=EVERYBODY)
    check(doc, changed)
    assert changed.unprobed == (HIDDEN,)
    assert changed.trees == doc.trees, "other trees only where that pays"
    assert with_link(changed, HIDDEN, probed=False) == changed
    # Trees go round a link that fails, also by the one that discovery does not see.
    lost = LINE.links[0]
    healed = later(changed, Lost((), (lost,)))
    assert [set(tree.links) for tree in healed.trees.values()] == [{LINE.links[1], HIDDEN}]


def test_a_link_that_is_to_carry_probes_is_lost_until_it_does() -> None:
    doc = with_link(line(), HIDDEN, probed=True, connected=EVERYBODY)
    check(line(), doc)
    assert (doc.lost.links, doc.unprobed) == ((HIDDEN,), ())
    assert with_link(doc, HIDDEN, probed=True, connected=EVERYBODY) == doc
    assert later(doc).lost == Lost()
    # If it is there already, it stays in use.
    known = with_link(line(), HIDDEN, probed=False, connected=EVERYBODY)
    assert with_link(known, HIDDEN, probed=True, connected=EVERYBODY).lost == Lost()


def test_a_link_to_a_switch_that_is_not_connected_is_lost_until_it_is() -> None:
    doc = put(line(), "edge", 7)
    link = Link("s3", 8, "edge", 1)
    declared = with_link(doc, link, probed=False, connected=EVERYBODY)
    check(doc, declared)
    assert declared.lost == Lost(("edge",), (link,))
    assert declared.trees == doc.trees
    assert {n: len(tree.links) for n, tree in later(declared).trees.items()} == {0: 3}
    gone = without_switch(declared, "edge")
    assert (gone.links, gone.unprobed) == (line().links, ())


@pytest.mark.parametrize(
    ("link", "text"),
    [
        (Link("s1", 9, "s8", 9), "there is no switch 's8'"),
        (Link("s1", 9, "s1", 10), "leads from s1 to itself"),
        (Link("s1", 0, "s3", 9), "port 0 is outside"),
        (Link("s1", 1, "s3", 9), "port 1 of s1 is taken by link s1:1 - s2:1"),
        (Link("s1", 9, "s3", 5), "port 5 of s3 is taken by host h3"),
    ],
)
def test_a_link_that_does_not_fit_is_refused(link: Link, text: str) -> None:
    doc = with_host(line(), Host("h3", "s3", 5))
    with pytest.raises(BadDeclaration, match=text) as refused:
        with_link(doc, link, probed=False, connected=EVERYBODY)
    assert refused.value.field == "id"


def test_a_link_for_which_a_switch_has_no_table_is_refused() -> None:
    doc = put(line(), "s9", 9, limits=SwitchLimits(tables=(0, 2)))
    doc = with_link(doc, Link("s9", 1, "s1", 8), probed=False)
    with pytest.raises(OutOfTables):
        with_link(doc, Link("s9", 2, "s2", 8), probed=False)


def test_a_link_that_trees_use_is_withdrawn_before_it_goes() -> None:
    doc = with_link(line(), HIDDEN, probed=False, connected=EVERYBODY)
    unused = without_link(doc, HIDDEN)
    assert (unused.links, unused.unprobed) == (line().links, ())
    lost = Lost((), (LINE.links[0],))
    used = later(doc, lost)
    back = later(used)  # the lost link, beside the tree that goes round it
    assert any(HIDDEN in tree.links for tree in back.trees.values())
    leaving = without_link(back, HIDDEN)
    check(back, leaving)
    assert (leaving.links, leaving.withdrawn) == (back.links, (HIDDEN,))
    assert with_link(leaving, HIDDEN, probed=False, connected=EVERYBODY) == back
    gone = later(leaving)
    assert (gone.links, gone.unprobed, gone.withdrawn) == (line().links, (), ())
    assert gone.lost == Lost()
    assert all(
        tree_links == set(LINE.links)
        for tree_links in map(set, (tree.links for tree in gone.trees.values()))
    )


def test_a_described_network_keeps_its_switches_and_links() -> None:
    doc = first_network(LINE, "legs", 1)
    with pytest.raises(Described, match="described at the first start"):
        put(doc, "s9", 9)
    with pytest.raises(Described):
        with_link(doc, HIDDEN, probed=False)
