"""Batches through the driver and the onos, over real HTTP: what is done, and what is said of it."""

import asyncio

import pytest
from msgspec.structs import replace

from dzflow.address import ALL, Match, Scope
from dzflow.errors import BadInput
from dzflow.region import Region
from sdn.network.topologies import topology
from sdn.network.topology import UnknownSwitch
from sdn.onos.codec import UnsupportedEntry
from sdn.onos.driver import LegsNotPossible, OnosDriver
from sdn.onos.options import OnosOptions
from sdn.onos.trees import TreeNotInUse
from sdn.outcomes import Acknowledged
from sdn.tables.flows import FlowEntry, ToGroup
from sdn.tables.pipeline import Pipeline
from tests.onos_standin import Behaviour
from tests.sdn.onos.support import (
    DELIVER,
    DONE,
    EVENT,
    LET_IN,
    LINE,
    ON,
    PIPELINE,
    QUICK,
    SCOPE,
    access,
    add,
    admit,
    delete,
    forward,
    modify,
    out,
    partition_of,
    put,
    reconcile,
    stage,
    to_host,
    undefined,
    wired,
)


async def test_entries_are_applied_read_back_and_deliver() -> None:
    async with stage(LINE) as on:
        assert on.driver.connected() == {"s1", "s2"}
        await wired(on)
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)
        assert set(await on.driver.read("s2")) == on.expected("s2", DELIVER)
        assert on.reached("h1", EVENT) == {"h2": 1}
        assert on.reached("h1", SCOPE.event(1 << 95, 0)) == {}  # not within what it offers
        assert on.reached("h2", EVENT) == {}
        assert {rule.app for rule in on.onos.rules("s1")} == {"org.dzflow"}


async def test_a_modified_entry_replaces_the_old_one() -> None:
    async with stage(LINE) as on:
        await wired(on)
        both = forward(PIPELINE, "0", *out(1), to_host(PIPELINE, "s1", "h1"))
        assert await put(on, "s1", *modify(both)) == Acknowledged()
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, both)
        assert on.reached("h1", EVENT) == {"h2": 1}  # nothing goes back to where it came from
        assert await put(on, "s1", *delete(both)) == Acknowledged()
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN)
        assert on.reached("h1", EVENT) == {}


async def test_one_rule_sends_to_switches_as_it_is_and_to_hosts_rewritten() -> None:
    star = topology("tree:2,3")  # s1 in the middle, hosts at the leaves only
    hosts = [host for host in star.hosts if host.switch == "s2"]
    assert hosts
    many = star.with_host(replace(hosts[0], id="h97", port=97))
    many = many.with_host(replace(hosts[0], id="h98", port=98))

    async with stage(many) as on:
        p = on.pipeline
        [way] = many.switch_ports("s2")
        far = next(host for host in many.hosts if host.switch == "s3")
        middle = {n.switch: n.port for n in many.neighbours("s1")}
        local = [to_host(p, "s2", name) for name in (hosts[0].id, "h97", "h98")]
        batch = {
            "s2": add(admit(p, "0", 98), forward(p, "0", *out(way), *local)),
            "s1": add(forward(p, "0", *out(middle["s3"]))),
            "s3": add(forward(p, "0", to_host(p, "s3", far.id))),
        }
        outcomes = await on.driver.apply("p7", 1, batch)
        assert set(outcomes.values()) == {Acknowledged()}
        assert on.reached("h98", EVENT) == {hosts[0].id: 1, "h97": 1, far.id: 1}


async def test_nothing_is_acknowledged_before_the_switch_has_confirmed() -> None:
    async with stage(LINE) as on:
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        waiting = asyncio.create_task(put(on, "s1", *add(ON)))
        await on.until_asked("POST")
        await on.until_asked("GET", 5)  # it asks again and again
        assert not waiting.done()
        assert set(await on.driver.read("s1")) == on.expected("s1")
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await waiting == Acknowledged()


async def test_nothing_is_deleted_before_additions_are_confirmed() -> None:
    async with stage(LINE) as on:
        await wired(on)
        fine = [forward(PIPELINE, dz, *out(1)) for dz in ("00", "01")]
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        waiting = asyncio.create_task(put(on, "s1", *add(*fine), *delete(ON)))
        await on.until_asked("POST")
        await on.until_asked("GET", 5)
        assert on.writes() == {"POST": 2, "DELETE": 0}
        assert on.reached("h1", EVENT) == {"h2": 1}
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await waiting == Acknowledged()
        assert on.writes() == {"POST": 0, "DELETE": 1}
        assert on.reached("h1", EVENT) == {"h2": 1}
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, *fine)


async def test_operations_on_one_entry_are_carried_out_one_after_another() -> None:
    async with stage(LINE) as on:
        other = forward(PIPELINE, "0", *out(2))
        ops = [*add(ON), *delete(ON), *add(other), *modify(ON), *add(LET_IN)]
        assert await put(on, "s1", *ops) == Acknowledged()
        assert set(await on.driver.read("s1")) == on.expected("s1", ON, LET_IN)


async def test_large_batches_go_in_several_requests() -> None:
    async with stage(LINE, replace(QUICK, chunk=3)) as on:
        entries = [forward(PIPELINE, f"{n:03b}", *out(1)) for n in range(8)]
        assert await put(on, "s1", *add(*entries)) == Acknowledged()
        assert sum(request.method == "POST" for request in on.onos.requests) == 3
        assert await put(on, "s1", *delete(*entries)) == Acknowledged()
        assert sum(request.method == "DELETE" for request in on.onos.requests) == 3
        assert set(await on.driver.read("s1")) == on.expected("s1")


async def test_batches_for_one_entry_keep_their_order_and_others_do_not_wait() -> None:
    async with stage(LINE) as on:
        await wired(on)
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        changed = forward(PIPELINE, "0", *out(2))
        first = asyncio.create_task(put(on, "s1", *modify(changed)))
        await on.until_asked("POST")
        second = asyncio.create_task(put(on, "s1", *modify(ON)))
        other = forward(PIPELINE, "1", *out(1))
        third = asyncio.create_task(put(on, "s1", *add(other)))
        await on.until_asked("POST", 2)
        assert not second.done()
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert [await task for task in (first, second, third)] == [Acknowledged()] * 3
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON, other)


async def test_work_beyond_the_bound_is_undefined() -> None:
    async with stage(LINE, replace(QUICK, queue=1)) as on:
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        first = asyncio.create_task(put(on, "s1", *add(ON)))
        await on.until_asked("POST")
        assert "wait already" in undefined(await put(on, "s1", *add(LET_IN)))
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await first == Acknowledged()


async def test_a_batch_that_is_given_up_leaves_the_switch_free() -> None:
    async with stage(LINE) as on:
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        waiting = asyncio.create_task(put(on, "s1", *add(ON)))
        await on.until_asked("POST")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await put(on, "s1", *add(ON)) == Acknowledged()


async def test_what_was_sent_by_a_batch_that_is_given_up_is_not_overtaken() -> None:
    async with stage(LINE) as on:
        on.onos.hold()
        given_up = asyncio.create_task(put(on, "s1", *add(forward(PIPELINE, "0", *out(2)))))
        await on.until_asked("POST")
        given_up.cancel()
        after = asyncio.create_task(put(on, "s1", *add(ON)))
        other = asyncio.create_task(put(on, "s1", *add(LET_IN)))
        await on.until_asked("POST", 2)  # of the one for another entry
        assert not given_up.done()
        on.onos.release()
        assert await after == await other == Acknowledged()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert set(await on.driver.read("s1")) == on.expected("s1", ON, LET_IN)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (FlowEntry(1, 100, Match(SCOPE.base(0), ALL ^ 2)), UnsupportedEntry),
        (FlowEntry(1, 100, SCOPE.match(Region.parse("0"))), UnsupportedEntry),
        (FlowEntry(1, 100, None, (ToGroup(99),)), UnsupportedEntry),
        (forward(PIPELINE, "0", tree=3), TreeNotInUse),
    ],
)
async def test_what_onos_cannot_hold_is_refused_and_nothing_is_sent(
    entry: FlowEntry, error: type[BadInput]
) -> None:
    async with stage(LINE, replace(QUICK, trees=(0, 1))) as on:
        with pytest.raises(error):
            await on.driver.apply("p7", 1, {"s1": add(ON), "s2": add(entry)})
        with pytest.raises(error):
            await reconcile(on.driver, "p7", 1, {"s1": [ON], "s2": [entry]})
        assert on.writes() == {"POST": 0, "DELETE": 0}


async def test_a_switch_that_is_not_in_the_topology_is_unknown() -> None:
    async with stage(LINE) as on:
        with pytest.raises(UnknownSwitch):
            await on.driver.apply("p7", 1, {"s1": add(ON), "s9": add(ON)})
        with pytest.raises(UnknownSwitch):
            await on.driver.read("s9")
        assert on.writes() == {"POST": 0, "DELETE": 0}


async def test_the_plan_legs_is_refused() -> None:
    legs = Pipeline(plan="legs").extended(LINE)

    async with stage(LINE) as on:
        with pytest.raises(LegsNotPossible, match=r"prefixes only.*use the plan lpm"):
            OnosDriver(LINE, legs, partition_of, {}, access(on.onos))
        with pytest.raises(LegsNotPossible):
            await on.driver.set_network(LINE, legs)


async def test_rules_that_share_an_id_with_a_deleted_one_stay() -> None:
    async with stage(LINE, id_bits=1) as on:
        entries = [forward(PIPELINE, f"{n:03b}", *out(1)) for n in range(8)]
        assert await put(on, "s1", *add(*entries)) == Acknowledged()
        assert await put(on, "s1", *delete(*entries[:2])) == Acknowledged()
        assert set(await on.driver.read("s1")) == on.expected("s1", *entries[2:])


async def test_several_spaces_do_not_touch_each_other() -> None:
    async with stage(LINE) as on:
        other = forward(PIPELINE, "0", *out(1), scope=Scope(8))
        for outcomes in await asyncio.gather(
            on.driver.apply("p7", 1, {"s1": add(ON)}),
            on.driver.apply("p8", 5, {"s1": add(other)}),
        ):
            assert outcomes == {"s1": Acknowledged()}
        assert set(await on.driver.read("s1")) == on.expected("s1", ON, other)


@pytest.mark.parametrize("wrong", [{"poll": 0.0}, {"confirm": -1.0}, {"chunk": 0}, {"queue": 0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        OnosOptions(**wrong)  # type: ignore[arg-type]


async def test_two_drivers_with_different_names_live_side_by_side() -> None:
    async with stage(LINE) as on:
        await wired(on)
        own = Pipeline(plan="lpm", first_table=10).extended(LINE)
        options = replace(QUICK, app="org.other")
        other = OnosDriver(LINE, own, partition_of, {}, access(on.onos), options)
        async with other:
            entry = forward(own, "0", *out(1))
            assert await other.apply("p7", 1, {"s1": add(entry)}) == {"s1": Acknowledged()}
            assert set(await other.read("s1")) == {*own.base_entries(LINE, "s1"), entry}
            assert await reconcile(other, "p7", 1, {}) == DONE
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)
