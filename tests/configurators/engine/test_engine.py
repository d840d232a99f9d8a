"""The engine's promises to its callers: two steps, named refusals, exact counting, net slices."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from configurators.engine.engine import (
    Decision,
    DecisionPending,
    Engine,
    NotContinued,
    NotPending,
    Ordering,
)
from configurators.engine.partials import Kind, Partial
from configurators.engine.steps import DuplicateId, MixedSlice, NoRegions, NotLoadable, UnknownId
from configurators.engine.validation import Invalid, validate
from dzflow.address import Scope
from dzflow.region import Region
from sdn.network.routes import BadTreeNumber, Routes
from sdn.network.topologies import topology
from sdn.network.topology import Host, UnknownHost
from sdn.network.trees import spanning_tree, spanning_trees
from sdn.tables.flows import Change, count
from sdn.tables.pipeline import Pipeline, PlanName
from sdn.tables.plans import NotADz, make_plan

NETWORK = topology("ring:4")


def engine(plan: PlanName = "legs", trees: int = 1) -> Engine:
    routes = Routes(NETWORK, dict(enumerate(spanning_trees(NETWORK, trees))))
    return Engine(make_plan(routes, Pipeline(plan=plan).extended(NETWORK), Scope(1)))


def regions(*texts: str) -> tuple[Region, ...]:
    return tuple(map(Region.parse, texts))


def subscribe(name: str, host: str, *texts: str) -> Partial:
    return Partial(Kind.SUBSCRIBE, name, host, regions(*texts))


def advertise(name: str, host: str, *texts: str) -> Partial:
    return Partial(Kind.ADVERTISE, name, host, regions(*texts), regions(*texts))


def done(of: Engine, *partials: Partial, ordering: Ordering = "net") -> Decision:
    decision = of.decide(partials, ordering)
    of.commit(decision)
    return decision


def operations(decisions: Sequence[Decision]) -> int:
    return sum(sum(count(decision.rounds).values()) for decision in decisions)


# Two steps


def test_a_decision_waits_for_commit_or_discard() -> None:
    one = engine()
    decision = one.decide([advertise("a", "h1", "0")])
    assert one.pending
    with pytest.raises(DecisionPending):
        one.decide([subscribe("s", "h2", "0")])
    with pytest.raises(DecisionPending):
        one.rewire(one.plan)
    one.commit(decision)
    assert not one.pending
    for again in (one.commit, one.discard):
        with pytest.raises(NotPending):
            again(decision)


def test_discarding_leaves_the_engine_as_it_was_and_says_how_to_undo() -> None:
    one = engine()
    done(one, advertise("a", "h1", "0"))
    done(one, subscribe("s1", "h3", "00"))
    before = one.contributions(), one.counts(), one.active()
    decision = one.decide([subscribe("s2", "h3", "0"), subscribe("s3", "h2", "01")])
    undo = one.discard(decision)
    assert (one.contributions(), one.counts(), one.active()) == before
    did, undid = count(decision.rounds), count(undo.rounds)
    assert (did[Change.ADD], did[Change.DELETE]) == (undid[Change.DELETE], undid[Change.ADD])
    validate(one)


def test_a_discarded_rewiring_leaves_everything_as_it_was() -> None:
    one = engine(trees=1)
    done(one, advertise("a", "h1", "0"))
    done(one, subscribe("s", "h3", "00"))
    before = {switch: set(found) for switch, found in one.entries().items()}
    old = one.plan.routes
    tree = spanning_tree(NETWORK, dict.fromkeys(old.trees[0].links, 1))
    routes = Routes(NETWORK, {5: tree}, after=old)
    decision = one.rewire(make_plan(routes, Pipeline().extended(NETWORK), Scope(1)))
    assert operations([decision])
    one.discard(decision)
    assert {switch: set(found) for switch, found in one.entries().items()} == before
    validate(one)


def test_a_rewiring_that_moves_a_host_can_be_discarded() -> None:
    one = engine()
    done(one, advertise("a", "h1", "0"))
    done(one, subscribe("s", "h3", "00"))
    plan, before = one.plan, one.entries()
    moved = NETWORK.with_host(Host("h3", "s2", 9))
    routes = Routes(moved, plan.routes.trees, after=plan.routes)
    tables = Pipeline().extended(NETWORK).extended(moved)
    decision = one.rewire(make_plan(routes, tables, Scope(1)))
    assert operations([decision])
    undo = one.discard(decision)
    assert operations([undo])
    assert one.plan is plan
    assert one.entries() == before
    # Others have the same plan still, so the next routes continue it.
    again = Routes(moved, plan.routes.trees, after=plan.routes)
    one.commit(one.rewire(make_plan(again, tables, Scope(1))))
    validate(one)


def test_routes_that_do_not_continue_those_in_use_are_refused() -> None:
    one = prepared()
    stranger = Routes(NETWORK, one.plan.routes.trees)
    with pytest.raises(NotContinued, match="after="):
        one.rewire(make_plan(stranger, Pipeline().extended(NETWORK), Scope(1)))
    assert not one.pending


def test_a_host_that_takes_over_the_port_of_another_keeps_its_admission() -> None:
    one = engine()
    done(one, advertise("a1", "h1", "0"), advertise("a2", "h2", "0"))
    done(one, subscribe("s", "h3", "0"))
    plan = one.plan
    h1, h2 = NETWORK.host("h1"), NETWORK.host("h2")
    away = NETWORK.without_host("h1").with_host(Host("h2", h1.switch, h1.port))
    swapped = away.with_host(Host("h1", h2.switch, h2.port))
    tables = Pipeline().extended(NETWORK).extended(swapped)
    routes = Routes(swapped, plan.routes.trees, after=plan.routes)
    decision = one.rewire(make_plan(routes, tables, Scope(1)))
    keys = [op.entry.key for batch in decision.rounds for ops in batch.values() for op in ops]
    assert len(set(keys)) == len(keys)
    one.commit(decision)
    validate(one)


def test_only_what_is_active_can_be_loaded() -> None:
    one = prepared()
    for partial in (Partial(Kind.UNSUBSCRIBE, "s"), Partial(Kind.UPDATE, "s", "", regions("0"))):
        with pytest.raises(NotLoadable):
            one.load([partial])
    validate(one)


def test_a_region_named_twice_counts_once() -> None:
    one = prepared()
    done(one, subscribe("twice", "h3", "01", "01"))
    done(one, Partial(Kind.UPDATE, "s", "", regions("00", "00")))
    validate(one)
    done(one, Partial(Kind.UNSUBSCRIBE, "twice"), Partial(Kind.UNSUBSCRIBE, "s"))
    assert sum(map(len, one.entries().values())) == 1  # the admission


def test_a_changed_tree_cannot_keep_its_number() -> None:
    first, second = spanning_trees(NETWORK, 2)
    routes = Routes(NETWORK, {0: first})
    with pytest.raises(BadTreeNumber, match="a free number"):
        Routes(NETWORK, {0: second}, after=routes)
    with pytest.raises(BadTreeNumber, match="16"):
        Routes(NETWORK, {16: second}, after=routes)


# Refusals, each with its name, and nothing changed


def prepared(plan: PlanName = "legs") -> Engine:
    one = engine(plan)
    done(one, advertise("a", "h1", "0"))
    done(one, subscribe("s", "h2", "00"))
    return one


@pytest.mark.parametrize(
    ("partials", "error"),
    [
        ([subscribe("s", "h3", "0")], DuplicateId),
        ([subscribe("x", "h3", "0"), subscribe("x", "h3", "1")], DuplicateId),
        ([Partial(Kind.UNSUBSCRIBE, "x")], UnknownId),
        ([Partial(Kind.UPDATE, "x", "", regions("0"))], UnknownId),
        ([Partial(Kind.UNSUBSCRIBE, "a")], UnknownId),
        ([Partial(Kind.UNADVERTISE, "s")], UnknownId),
        ([subscribe("x", "nobody", "0")], UnknownHost),
        ([subscribe("x", "h3", "0"), subscribe("y", "h3")], NoRegions),
    ],
)
def test_a_bad_slice_is_refused_whole(partials: list[Partial], error: type[Exception]) -> None:
    one = prepared()
    before = one.contributions(), one.counts(), one.active()
    with pytest.raises(error):
        one.decide(partials)
    assert (one.contributions(), one.counts(), one.active()) == before
    assert not one.pending


@pytest.mark.parametrize("ordering", ["fifo", "ordered"])
def test_where_order_matters_a_slice_is_of_one_kind(ordering: Ordering) -> None:
    one = prepared()
    with pytest.raises(MixedSlice):
        one.decide([subscribe("x", "h3", "0"), advertise("y", "h3", "0")], ordering)
    assert not one.pending


def test_a_mixed_slice_sends_only_the_net_difference() -> None:
    one = prepared()
    (had,) = (partial for partial in one.active() if partial.id == "s")
    swap = [Partial(Kind.UNSUBSCRIBE, "s"), replace(had, id="t")]
    assert one.decide(swap).rounds == ()


def test_lpm_refuses_regions_that_are_not_prefixes() -> None:
    with pytest.raises(NotADz, match="zorder"):
        prepared("lpm").decide([subscribe("x", "h3", "0*1")])


# Counting and slices


def test_an_empty_slice_decides_nothing() -> None:
    one = prepared()
    for ordering in ("fifo", "ordered", "net"):
        assert done(one, ordering=ordering).rounds == ()


def test_a_second_subscription_of_a_host_for_the_same_region_costs_nothing() -> None:
    one = prepared()
    assert operations([done(one, subscribe("again", "h2", "00"))]) == 0
    assert operations([done(one, Partial(Kind.UNSUBSCRIBE, "s"))]) == 0
    assert operations([done(one, Partial(Kind.UNSUBSCRIBE, "again"))]) > 0


def test_a_host_gets_no_entries_for_its_own_events() -> None:
    one = engine()
    done(one, advertise("a", "h1", "0"))
    assert operations([done(one, subscribe("s", "h1", "0"))]) == 0


def test_an_update_adds_everywhere_before_it_removes_anywhere() -> None:
    one = prepared()
    decision = done(one, Partial(Kind.UPDATE, "s", "", regions("01")))
    first, second = (count([batch]) for batch in decision.rounds)
    assert first[Change.ADD] > 0 == first[Change.DELETE]
    assert second[Change.DELETE] > 0 == second[Change.ADD]


def test_an_update_to_the_same_regions_costs_nothing() -> None:
    one = prepared()
    assert done(one, Partial(Kind.UPDATE, "s", "", regions("00"))).rounds == ()


def test_the_active_requests_of_an_engine_can_be_loaded_into_another() -> None:
    one = prepared()
    other = Engine(one.plan)
    other.load(one.active())
    assert other.contributions() == one.contributions()
    assert len(other) == 2
    assert "s" in other


def test_requests_of_missing_hosts_can_be_loaded_and_get_entries_later() -> None:
    small = NETWORK.without_host("h2")
    routes = Routes(small, {0: spanning_tree(small)})
    one = Engine(make_plan(routes, Pipeline().extended(small), Scope(1)))
    one.load([advertise("a", "h1", "0"), subscribe("s", "h2", "00")])
    assert sum(map(len, one.entries().values())) == 1  # the admission of h1
    again = Routes(NETWORK, routes.trees, after=routes)
    one.rewire(make_plan(again, Pipeline().extended(NETWORK), Scope(1)))
    assert sum(map(len, one.entries().values())) > 1


partials = st.lists(
    st.tuples(st.sampled_from(["h2", "h3", "h4"]), st.text("01", max_size=4)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(partials, partials, st.sampled_from(["legs", "lpm"]), st.data())
def test_net_never_takes_more_operations_than_ordered(
    loaded: list[tuple[str, str]],
    wanted: list[tuple[str, str]],
    plan: PlanName,
    data: st.DataObject,
) -> None:
    gone = data.draw(st.lists(st.integers(0, len(loaded) - 1), unique=True))
    spent = {}
    for ordering in ("ordered", "net"):
        one = engine(plan)
        one.load([advertise("a", "h1", "")])
        one.load([subscribe(f"l{n}", host, dz) for n, (host, dz) in enumerate(loaded)])
        new = [subscribe(f"n{n}", host, dz) for n, (host, dz) in enumerate(wanted)]
        old = [Partial(Kind.UNSUBSCRIBE, f"l{n}") for n in gone]
        spent[ordering] = [operations([done(one, *part, ordering=ordering)]) for part in (new, old)]
        validate(one)
    for net, ordered in zip(spent["net"], spent["ordered"], strict=True):
        assert net <= ordered


def test_validation_finds_a_wrong_count() -> None:
    class Miscounting(Engine):
        def counts(self) -> dict[Region, Any]:
            return {region: ({0: 5}, *others) for region, (_, *others) in super().counts().items()}

    one = Miscounting(engine().plan)
    done(one, subscribe("s", "h2", "00"))
    with pytest.raises(Invalid, match="counts"):
        validate(one)


def test_validation_finds_a_wrong_contribution() -> None:
    class Silent(Engine):
        def contributions(self) -> dict[Region, Any]:
            return dict.fromkeys(super().contributions(), (0, 0))

    one = Silent(engine().plan)
    done(one, advertise("a", "h1", "0"))
    with pytest.raises(Invalid, match="contributions"):
        validate(one)
