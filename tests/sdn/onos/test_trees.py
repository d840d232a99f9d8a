"""An entry that lets events in on all trees is a rule for each tree, and one entry again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import ALL, MAX_TREE, Match, Scope
from dzflow.errors import BadInput
from dzflow.region import Region, is_prefix
from sdn.network.topologies import topology
from sdn.onos.codec import UnsupportedEntry
from sdn.onos.trees import EVERY_TREE, TreeNotInUse, Trees
from sdn.tables.flows import FlowEntry, Output
from sdn.tables.pipeline import Pipeline
from tests.sdn.onos.support import SCOPE, admit, forward

PIPELINE = Pipeline(plan="lpm", first_table=3).extended(topology("line:2"))
BASE = tuple(PIPELINE.base_entries(topology("line:2"), "s1"))

dzs = st.text("01", max_size=6)
numbers = st.sets(st.integers(0, MAX_TREE), min_size=1).map(lambda n: tuple(sorted(n)))
trees = st.builds(Trees, st.just(PIPELINE.first_table), numbers)
admitted = st.builds(
    lambda dz, port, space: admit(PIPELINE, dz, port, Scope(space)),
    dzs,
    st.integers(1, 3),
    st.integers(1, 2),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Trees, set[FlowEntry]]:
    """Trees in use, and entries of a switch that belong to them."""
    used = draw(trees)
    forwarded = st.builds(
        lambda dz, port, tree: forward(PIPELINE, dz, Output(port), tree=tree),
        dzs,
        st.integers(1, 3),
        st.sampled_from(used.numbers),
    )
    drawn = draw(st.lists(admitted | forwarded, max_size=8, unique_by=lambda entry: entry.key))
    return used, {*BASE, *drawn}


@given(tables())
def test_expanded_entries_fold_to_what_they_were(table: tuple[Trees, set[FlowEntry]]) -> None:
    used, entries = table
    rules = [rule for entry in entries for rule in used.expand(entry)]
    assert all(rule.match and is_prefix(rule.match.mask, ALL) for rule in rules)
    assert len({rule.key for rule in rules}) == len(rules)
    folded = list(used.fold(rules))
    assert len(folded) == len(entries)
    assert set(folded) == entries


@given(tables(), st.data())
def test_rules_let_in_what_the_entry_does_on_the_trees_in_use(
    table: tuple[Trees, set[FlowEntry]], data: st.DataObject
) -> None:
    used, entries = table
    for entry in entries:
        used.check(entry)
        assert entry.match is not None
        tree = data.draw(st.sampled_from(used.numbers))
        event = SCOPE.event(data.draw(st.integers(0, 2**96 - 1)), tree)
        rules = used.expand(entry)
        assert entry.match.holds(event) == any(r.match and r.match.holds(event) for r in rules)


@given(tables(), st.data())
def test_a_part_that_is_missing_is_not_hidden(
    table: tuple[Trees, set[FlowEntry]], data: st.DataObject
) -> None:
    used, entries = table
    rules = [rule for entry in entries for rule in used.expand(entry)]
    lost = data.draw(st.sampled_from(rules))
    folded = set(used.fold(rule for rule in rules if rule is not lost))
    assert used.whole(lost) not in folded
    assert folded != entries


def test_rules_of_trees_out_of_use_are_shown_beside_the_entry() -> None:
    entry = admit(PIPELINE, "01", 2)
    few, many = Trees(3, (0, 2)), Trees(3, (0, 1, 2))
    stale = many.expand(entry)[1]
    assert list(few.fold(many.expand(entry))) == [entry, stale]
    assert few.whole(stale) == entry


def test_a_whole_space_needs_one_rule_only() -> None:
    entry = admit(PIPELINE, "", 2)
    assert Trees(3).expand(entry) == (entry,)
    assert len(Trees(3).expand(admit(PIPELINE, "0", 2))) == len(EVERY_TREE)


def test_an_entry_for_a_tree_that_is_not_in_use_is_refused() -> None:
    used = Trees(3, (0, 1))
    used.check(forward(PIPELINE, "0", tree=1))
    with pytest.raises(TreeNotInUse, match=r"tree 2.*set_network"):
        used.check(forward(PIPELINE, "0", tree=2))


def test_what_prefixes_cannot_say_is_refused() -> None:
    used = Trees(3)
    scattered = FlowEntry(4, 100, Match(SCOPE.base(0), Match(0, 0).mask | 5))
    with pytest.raises(UnsupportedEntry, match="zorder"):
        used.expand(scattered)
    with pytest.raises(UnsupportedEntry, match="zorder"):
        used.expand(FlowEntry(4, 100, SCOPE.match(Region.parse("0"))))
    with pytest.raises(UnsupportedEntry, match="leave the number of the tree open"):
        used.check(FlowEntry(3, 200, SCOPE.match(Region.parse("0"), 1)))


@pytest.mark.parametrize("bad", [(), (16,), (-1,)])
def test_trees_in_use_must_be_some_and_within_range(bad: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="trees in use"):
        Trees(0, bad)
