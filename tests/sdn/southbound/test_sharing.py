"""Batches that share a barrier, declarations without a comparison, and switches that are shared."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sdn.emulator import EmulatedNetwork, SwitchModel
from sdn.fence import StaleEpoch
from sdn.flows import FlowEntry, FlowOp, Output
from sdn.network_events import MastershipLost, Repaired
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.protocol.constants import V1_3, V1_4
from sdn.openflow.switches.connection import Finished
from sdn.openflow.switches.flow_mod_queue import BARRIERS, PIECE
from sdn.outcomes import Acknowledged, Failed, Undefined
from sdn.pipeline import Pipeline
from tests.sdn.southbound.planes import WAIT, all_up, next_event
from tests.sdn.southbound.test_faults import LINE, Rig, adds, entry, rig

# Barriers


def runs_to(r: Rig, switch: str) -> list[int]:
    """The sizes of all runs that are sent to a switch from now on."""
    sizes: list[int] = []
    connection = r.driver.connection(switch)
    send = connection.send_ops

    def counted(ops: Sequence[FlowOp], finished: Finished) -> None:
        sizes.append(len(ops))
        send(ops, finished)

    connection.send_ops = counted  # type: ignore[method-assign]
    return sizes


LATE = {"s2": SwitchModel(acknowledge_after=0.1)}


async def test_small_batches_that_wait_for_barriers_share_the_next_one() -> None:
    async with rig(models=LATE) as r:
        sizes = runs_to(r, "s2")
        tasks = []
        for number in range(1, 41):
            tasks.append(asyncio.create_task(r.apply("s2", adds(number))))
            await asyncio.sleep(0)  # so that they do not all come in one turn
        assert set(await asyncio.gather(*tasks)) == {Acknowledged()}
        assert sum(sizes) == 40
        assert len(sizes) <= BARRIERS + 2
        await r.agrees("s2", *map(entry, range(1, 41)))


async def test_large_batches_do_not_wait_for_barriers() -> None:
    async with rig(models=LATE) as r:
        sizes = runs_to(r, "s2")
        numbers = range(1, 4 * PIECE + 11)
        assert await r.apply("s2", adds(*numbers)) == Acknowledged()
        assert sizes == [*[PIECE] * 4, 10]


async def test_errors_in_a_shared_run_go_to_the_batch_that_they_belong_to() -> None:
    async with rig(models=LATE) as r:
        switch = r.network.switches["s2"]
        refused = {entry(6).match, entry(12).match}
        switch.refuse(lambda mod: getattr(mod.entry, "match", None) in refused, times=None)
        sizes = runs_to(r, "s2")
        batches = [adds(*range(n, n + 3)) for n in range(1, 16, 3)]
        outcomes = await asyncio.gather(*(r.apply("s2", batch) for batch in batches))
        assert sizes == [15]
        places = [set(o.refused) if isinstance(o, Failed) else set() for o in outcomes]
        assert places == [set(), {2}, set(), {2}, set()]
        left = [entry(n) for n in range(1, 16) if n not in (6, 12)]
        await r.agrees("s2", *left)
        await r.driver.audit("s2")
        await r.agrees("s2", *left)


async def test_a_batch_that_cannot_be_encoded_spoils_none_that_it_would_share_a_run_with() -> None:
    async with rig() as r:
        wrong = [FlowOp(adds(1)[0].change, FlowEntry(1, 1 << 20, None, (Output(1),)))]
        outcomes = await asyncio.gather(
            r.apply("s2", adds(1)), r.apply("s2", wrong), r.apply("s2", adds(2))
        )
        assert [type(o) for o in outcomes] == [Acknowledged, Failed, Acknowledged]
        await r.agrees("s2", entry(1), entry(2))


async def test_a_batch_of_an_older_epoch_is_left_out_of_a_shared_run() -> None:
    async with rig() as r:
        old = asyncio.create_task(r.apply("s2", adds(1), epoch=1))
        other = asyncio.create_task(r.driver.apply("other", 1, {"s2": adds(2)}))
        await asyncio.sleep(0)
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await old
        assert (await other)["s2"] == Acknowledged()
        await r.agrees("s2", entry(2))


# Declarations


async def test_declarations_are_compared_once_for_all() -> None:
    async with rig() as r:
        await r.apply("s2", adds(1, 2))
        while not r.driver.events.empty():
            r.driver.events.get_nowait()
        await r.driver.declare("p", 1, {"s2": [entry(2)]})
        await r.driver.declare("q", 1, {"s2": [entry(3)], "s1": [entry(4)]}, ["s2"])
        await r.agrees("s2", entry(1), entry(2))  # nothing was sent yet
        assert set((await r.driver.audit("s1", "s2")).values()) == {Acknowledged()}
        assert await next_event(r.driver, Repaired) == Repaired("s2", 2)
        await r.agrees("s2", entry(2), entry(3))
        await r.agrees("s1")  # for it, nothing was declared
        await r.driver.raise_epoch("p", 5)
        with pytest.raises(StaleEpoch):
            await r.driver.declare("p", 4, {})


async def test_who_asks_while_a_switch_is_compared_shares_the_next_comparison() -> None:
    async with rig() as r:
        connection = r.driver.connection("s2")
        asked = 0
        read = connection.flow_stats

        async def counted() -> Any:
            nonlocal asked
            asked += 1
            return await read()

        connection.flow_stats = counted  # type: ignore[method-assign]
        await asyncio.gather(*(r.driver.audit("s2") for _ in range(20)))
        assert asked <= 2


# Shared switches


@asynccontextmanager
async def two(
    version: int,
) -> AsyncIterator[tuple[OpenFlowDriver, OpenFlowDriver, EmulatedNetwork]]:
    pipeline = Pipeline().extended(LINE)
    settings = DriverOptions(port=0, timeout=WAIT, discover=False)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as one,
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as other,
    ):
        one.assign(["s1", "s2"], 1)
        other.assign(["s3"], 2)
        both = [("127.0.0.1", one.port), ("127.0.0.1", other.port)]
        async with EmulatedNetwork(LINE, both, versions=(version,)) as network:
            await all_up(one, LINE.without_switch("s3"))
            await all_up(other, LINE.without_switch("s1").without_switch("s2"))
            yield one, other, network


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_each_driver_uses_its_own_switches_only(version: int) -> None:
    async with two(version) as (one, other, network):
        assert one.up() == {"s1", "s2"}
        assert other.up() == {"s3"}
        assert not one.down()
        assert not other.down()
        outcomes = await one.apply("p", 1, {"s1": adds(1), "s3": adds(1)})
        assert outcomes["s1"] == Acknowledged()
        assert isinstance(outcomes["s3"], Undefined)
        assert (await other.apply("p", 1, {"s3": adds(2)}))["s3"] == Acknowledged()
        assert entry(2) in network.switches["s3"].entries()
        assert one.events.empty()


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_a_switch_changes_hands_and_keeps_what_it_holds(version: int) -> None:
    async with two(version) as (one, other, network):
        await one.apply("p", 1, {"s2": adds(1, 2)})
        one.assign(["s1"], 1)
        other.assign(["s2", "s3"], 3)
        await all_up(other, LINE.without_switch("s1").without_switch("s3"))
        assert one.up() == {"s1"}
        assert other.up() == {"s2", "s3"}
        # What it should hold is not known there yet: nothing was removed.
        assert {entry(1), entry(2)} <= set(network.switches["s2"].entries())
        await other.reconcile("p", 1, {"s2": [entry(2), entry(3)]})
        held = set(network.switches["s2"].entries())
        assert held & {entry(1), entry(2), entry(3)} == {entry(2), entry(3)}
        # And back again: of what it had there before, the first one has kept nothing.
        other.assign(["s3"], 3)
        one.assign(["s1", "s2"], 4)
        await all_up(one, LINE.without_switch("s1").without_switch("s3"))
        assert "p" not in one.declared("s2")
        await one.audit("s2")
        assert set(network.switches["s2"].entries()) == held


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_who_was_not_told_that_it_lost_a_switch_changes_nothing(version: int) -> None:
    async with two(version) as (one, other, network):
        other.assign(["s2", "s3"], 3)  # the first one still believes that it has it
        await all_up(other, LINE.without_switch("s1").without_switch("s3"))
        outcome = (await one.apply("p", 1, {"s2": adds(1)}))["s2"]
        assert isinstance(outcome, Undefined)
        await next_event(one, MastershipLost)
        assert one.up() == {"s1"}
        assert not one.down()
        assert entry(1) not in network.switches["s2"].entries()
        one.assign(["s1", "s2"], 4)
        await all_up(one, LINE.without_switch("s1").without_switch("s3"))
        assert (await one.apply("p", 1, {"s2": adds(1)}))["s2"] == Acknowledged()


async def test_a_switch_that_connects_later_is_taken_by_whose_it_is() -> None:
    async with two(V1_4) as (one, other, network):
        network.agents["s2"].drop()
        async with asyncio.timeout(WAIT):
            while "s2" in one.up():
                await asyncio.sleep(0.01)
        assert one.down().keys() == {"s2"}
        one.assign(["s1"], 1)
        other.assign(["s2", "s3"], 3)
        assert not one.down()
        assert other.down().keys() == {"s2"}
        network.agents["s2"].come_back()
        await all_up(other, LINE.without_switch("s1").without_switch("s3"))
        assert other.up() == {"s2", "s3"}
