"""Operations that a switch refuses, and switches that the driver refuses."""

import asyncio

import pytest

from sdn.emulator.model import SwitchModel
from sdn.emulator.network import EmulatedNetwork
from sdn.network.events import (
    SwitchUnusable,
)
from sdn.network.topologies import topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged, Failed
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import Pipeline
from tests.sdn.southbound.support import (
    LINE,
    WAIT,
    adds,
    entry,
    next_event,
    rig,
)


async def test_an_error_in_the_middle_of_a_batch_is_tied_to_its_operation() -> None:
    async with rig() as r:
        r.network.switches["s2"].refuse(skip=1, times=1)
        outcome = await r.apply("s2", adds(1, 2, 3))
        assert isinstance(outcome, Failed)
        assert set(outcome.refused) == {1}
        assert not outcome.table_full
        await r.agrees("s2", entry(1), entry(3))
        await r.driver.audit("s2")
        await r.agrees("s2", entry(1), entry(3))


async def test_a_batch_that_cannot_be_encoded_fails_and_the_next_one_goes_on() -> None:
    async with rig() as r:
        wrong = FlowEntry(1, 1 << 20, None, (Output(1),))
        outcome = await r.apply("s2", [FlowOp(Change.ADD, wrong)])
        assert isinstance(outcome, Failed)
        assert await r.apply("s2", adds(1)) == Acknowledged()
        await r.agrees("s2", entry(1))


async def test_a_switch_without_enough_tables_is_refused_with_advice() -> None:
    pipeline = Pipeline().extended(LINE)
    settings = DriverOptions(port=0, timeout=WAIT)
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as driver:
        poor = {"s2": SwitchModel(tables=3), "s3": SwitchModel(masks="prefix")}
        async with EmulatedNetwork(LINE, [("127.0.0.1", driver.port)], models=poor):
            refused: dict[int, str] = {}
            while len(refused) < 2:
                event = await next_event(driver, SwitchUnusable)
                refused[event.dpid] = event.reason
    assert "3 tables" in refused[2]
    assert "lpm" in refused[2]
    assert "mask" in refused[3]
    assert "lpm" in refused[3]


async def test_a_switch_outside_the_topology_is_refused() -> None:
    pipeline = Pipeline().extended(LINE)
    settings = DriverOptions(port=0, timeout=WAIT)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as driver,
        EmulatedNetwork(topology("line:4"), [("127.0.0.1", driver.port)]),
    ):
        event = await next_event(driver, SwitchUnusable)
        assert event.dpid == 4


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x04\x00\x00\x08\x00\x00\x00\x01\x04\x06\xff\xff\x00\x00\x00\x02",
        b"\x04\x00\x00\x02\x00\x00\x00\x01",
        b"\x04\x00\x00\x08\x00\x00\x00\x01\x04\x0e\x00",
        bytes(range(256)) * 8,
    ],
)
async def test_a_peer_that_talks_nonsense_ends_its_own_connection_only(data: bytes) -> None:
    async with rig() as r:
        reader, writer = await asyncio.open_connection("127.0.0.1", r.driver.port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(WAIT):
            while await reader.read(4096):
                pass
        writer.close()
        await writer.wait_closed()
        assert r.driver.connected() == {"s1", "s2", "s3"}
        assert await r.apply("s2", adds(1)) == Acknowledged()
