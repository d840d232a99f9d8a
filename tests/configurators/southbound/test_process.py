"""A southbound process: the fence, restarts, and reports."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.state.network import first_network, with_host
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import NETWORK, SOUTHBOUND, owner_key
from configurators.streams.listener import CannotConnect, connect
from configurators.streams.messages import (
    Applied,
    Declare,
    FromSouthbound,
    SwitchCounters,
)
from configurators.streams.packing import pack_ops, unpack_entries
from dzflow.address import Scope
from dzflow.errors import BadInput
from dzflow.region import Region
from sdn.emulator import EmulatedNetwork
from sdn.emulator.agent import Dialling
from sdn.network.topology import Host
from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import MATCH_PRIORITY
from tests.certificates import make_keys
from tests.configurators.southbound.support import (
    LINE,
    NAMES,
    PARTITION,
    SPACE,
    TOKEN,
    Client,
    adds,
    client,
    controllers,
    entry,
    line,
    on_switch,
    process,
    running,
    store,
    view,
)
from tests.etcd import TestEtcd
from tests.onos_standin import OnosStandIn
from tests.sdn.southbound.planes import switch_keys
from tests.support import WAIT, until


async def test_operations_are_acknowledged_and_read_back(etcd_server: TestEtcd) -> None:
    async with line(etcd_server.access()) as (c, epoch, *_):
        report = await c.holding(*NAMES)
        assert report.southbound == "b1"
        assert report.down == {}
        assert report.ports_down == []
        assert report.network > 0
        assert (await c.declare(epoch)).outcomes == dict.fromkeys(NAMES, Acknowledged())
        applied = await c.apply({"s1": adds(1, 2), "s3": adds(3)}, epoch)
        assert applied == Applied({"s1": Acknowledged(), "s3": Acknowledged()})
        assert await on_switch(c, "s1") == {entry(1), entry(2)}
        unknown = await c.apply({"s9": adds(1), "s1": adds(4)}, epoch)
        assert isinstance(unknown.outcomes.pop("s9"), Undefined)
        assert unknown.outcomes == {"s1": Acknowledged()}
        assert "s9" in ((await c.flows("s9")).reason or "")


async def test_what_was_counted_is_reported_when_a_stream_opens_and_when_it_changes(
    etcd_server: TestEtcd,
) -> None:
    async with line(etcd_server.access()) as (c, epoch, _, p):
        await c.declare(epoch)
        await c.apply({"s1": adds(1, 2), "s3": adds(3)}, epoch)

        def of(reader: Client, switch: str) -> SwitchCounters:
            found = reader.counters.switches.get(switch) if reader.counters else None
            return found or SwitchCounters()

        await until(lambda: of(c, "s1").operations == 2 and of(c, "s3").acknowledged == 1)
        assert (of(c, "s2").connections, of(c, "s2").acknowledged) == (1, 0)
        async with client(p.listen) as later:
            await until(lambda: later.counters)
            assert later.counters == c.counters


async def test_requests_do_not_overtake_a_declaration(
    etcd_server: TestEtcd,
) -> None:
    async with line(etcd_server.access()) as (c, epoch, *_):
        await c.declare(epoch)
        others = [f"9.0/{number:b}" for number in range(20)]
        epochs = dict.fromkeys([*others, PARTITION], epoch)
        declared, applied, again = await asyncio.gather(
            c.stream.ask(Declare(epochs, {}), WAIT),
            c.apply({"s1": adds(1)}, epoch),
            c.declare(epoch, {"s1": [entry(1), entry(2)]}),
        )
        assert declared.outcomes == dict.fromkeys(NAMES, Acknowledged())
        # It was sent between the two declarations, or given up for the second one.
        assert isinstance(applied.outcomes["s1"], Acknowledged | Undefined)
        assert again.outcomes == dict.fromkeys(NAMES, Acknowledged())
        assert await on_switch(c, "s1") == {entry(1), entry(2)}
        await asyncio.gather(
            c.stream.ask(Declare(epochs, {}), WAIT), c.apply({"s1": adds(3)}, epoch)
        )
        await c.stream.ask(Declare({others[0]: epoch}, {}), WAIT)  # compares once more
        assert await on_switch(c, "s1") == {entry(3)}


async def test_the_process_is_registered_while_it_lives(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    await store(access)
    async with Etcd(access) as etcd:
        async with process(access) as p:
            assert await etcd.get(SOUTHBOUND + "b1") is not None
            address = p.listen
        assert await etcd.get(SOUTHBOUND + "b1") is None
    with pytest.raises(CannotConnect):
        await connect(address, TOKEN, Client().hear, FromSouthbound, "c1")


async def test_it_waits_for_a_network_and_can_be_stopped_meanwhile(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    stop = asyncio.Event()
    made = SouthboundProcess(access, TOKEN, "b1", "127.0.0.1:0", "127.0.0.1:0")
    task = asyncio.create_task(made.run(stop))
    stop.set()
    await asyncio.wait_for(task, WAIT)
    made = SouthboundProcess(access, TOKEN, "b1", "127.0.0.1:0", "127.0.0.1:0")
    stop = asyncio.Event()
    task = asyncio.create_task(made.run(stop))
    await store(access)
    await asyncio.wait_for(made.ready.wait(), WAIT)
    stop.set()
    await asyncio.wait_for(task, WAIT)


async def test_epochs_older_than_those_in_etcd_are_rejected(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    async with line(access) as (c, epoch, *_), Etcd(access) as etcd:
        # Known from the start, before anybody has raised anything.
        assert "epoch" in ((await c.apply({"s1": adds(1)}, epoch - 1)).stale or "")
        assert (await c.declare(epoch - 1)).stale
        assert PARTITION in (await c.raise_epoch(epoch - 1)).stale
        await c.declare(epoch)
        # A new owner in etcd is enough, even if it does not say so itself.
        newer = await etcd.put(owner_key(PARTITION), b"c2")

        async def stale() -> bool:
            return bool((await c.apply({"s1": adds(1)}, epoch)).stale)

        await until(stale)
        assert not (await c.raise_epoch(newer + 10)).stale
        assert (await c.apply({"s1": adds(1)}, newer)).stale
        applied = await c.apply({"s1": adds(2)}, newer + 10)
        assert applied.outcomes == {"s1": Acknowledged()}


async def test_a_partition_has_to_be_declared_before_it_is_worked_on(etcd_server: TestEtcd) -> None:
    async with line(etcd_server.access()) as (c, epoch, *_):
        outcome = (await c.apply({"s1": adds(1)}, epoch)).outcomes["s1"]
        assert isinstance(outcome, Undefined)
        assert "declared" in outcome.reason
        declared = await c.declare(epoch, switches=["s1", "s9"], check=False)
        assert declared.outcomes["s1"] == Acknowledged()
        assert isinstance(declared.outcomes["s9"], Undefined)
        outcomes = (await c.apply({"s1": adds(1), "s2": adds(1)}, epoch)).outcomes
        assert outcomes["s1"] == Acknowledged()
        assert isinstance(outcomes["s2"], Undefined)


async def test_a_restarted_process_leaves_entries_alone_until_it_is_told_what_should_hold(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with EmulatedNetwork(LINE) as network:
        async with process(access) as p:
            network.set_controllers(controllers(p))
            async with client(p.listen) as c:
                await c.holding(*NAMES)
                await c.declare(epoch)
                await c.apply({"s1": adds(1, 2)}, epoch)
        async with process(access, openflow=p.openflow) as p, client(p.listen) as c:
            await c.holding(*NAMES)
            assert await on_switch(c, "s1") == {entry(1), entry(2)}
            declared = await c.declare(epoch, {"s1": [entry(2), entry(3)]})
            assert declared.outcomes["s1"] == Acknowledged()
            assert await on_switch(c, "s1") == {entry(2), entry(3)}


async def test_several_declarations_are_compared_in_one_go(etcd_server: TestEtcd) -> None:
    async with line(etcd_server.access()) as (c, epoch, *_):
        outcomes = await asyncio.gather(
            *(c.declare(epoch, {"s2": [entry(n)]}, partition=f"p{n}") for n in range(1, 30))
        )
        assert all(a.outcomes == dict.fromkeys(NAMES, Acknowledged()) for a in outcomes)
        assert await on_switch(c, "s2") == {entry(n) for n in range(1, 30)}


async def test_reports_follow_switches_and_ports_that_go_and_come(etcd_server: TestEtcd) -> None:
    async with line(etcd_server.access()) as (c, epoch, network, p):
        await c.declare(epoch)
        network.agents["s2"].drop()
        report = await c.holding("s1", "s3")
        assert report.down.keys() == {"s2"}
        assert report.down["s2"]
        outcome = (await c.apply({"s2": adds(1)}, epoch)).outcomes["s2"]
        assert isinstance(outcome, Undefined)
        assert "connect" in outcome.reason
        assert "not connected" in ((await c.flows("s2")).reason or "")
        network.agents["s2"].come_back()
        await c.holding(*NAMES)
        link = LINE.links[0]
        network.set_link(link, up=False)
        await c.until(lambda h: h.ports_down == sorted(link.ends))
        async with client(p.listen) as late:  # is told the same when it comes
            await late.until(lambda h: h.ports_down == sorted(link.ends))
        network.set_link(link, up=True)
        await c.until(lambda h: h.ports_down == [])


async def test_a_changed_network_is_taken_up_and_reported(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    async with line(access) as (c, _, network, *_), Etcd(access) as etcd:
        doc = with_host(first_network(LINE, "legs", 1), Host("new", "s2", 40))
        revision = await etcd.put(NETWORK, encode(doc))
        await c.until(lambda h: h.network == revision)
        assert 40 in [
            step.port
            for group in network.switches["s2"].tables.groups.values()
            for steps in group.buckets
            for step in steps
            if isinstance(step, Output)
        ]


async def test_only_switches_whose_certificate_names_them_are_let_in(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    keys = make_keys(tmp_path)

    access = etcd_server.access()
    await store(access)
    files: dict[str, Any] = {
        "cert": str(keys.certificate),
        "key": str(keys.key),
        "ca": str(keys.authority),
    }
    async with process(access, **files) as p, client(p.listen) as c:
        dialling = Dialling(tls=switch_keys(keys, LINE).client())
        async with EmulatedNetwork(LINE, controllers(p), dialling=dialling):
            await c.holding(*NAMES)
        async with EmulatedNetwork(LINE, controllers(p)):
            assert (await c.holding()).down.keys() == NAMES


async def test_switches_can_be_reached_through_an_onos(etcd_server: TestEtcd) -> None:
    partition = view("lpm").partitions()[0]
    routed = FlowEntry(
        1,
        MATCH_PRIORITY + 16,
        Scope(SPACE).match(Region(1 << 80, 0xFFFF << 80), 0),
        (Output(1),),
    )

    access = etcd_server.access()
    epoch = await store(access, plan="lpm")
    async with EmulatedNetwork(LINE) as network, OnosStandIn(network) as onos:
        options = SouthboundOptions(
            onos=OnosAccess(onos.url, "onos", "rocks"),
            onos_options=OnosOptions(confirm=WAIT, poll=0.002, slowest_poll=0.05),
        )
        made = SouthboundProcess(
            access, TOKEN, "b1", "127.0.0.1:0", data_plane="onos", options=options
        )
        async with running(made), client(made.listen) as c:
            await c.holding(*NAMES)
            declared = await c.declare(epoch, partition=partition)
            assert declared.outcomes == dict.fromkeys(NAMES, Acknowledged())
            ops = pack_ops([FlowOp(Change.ADD, routed)])
            applied = await c.apply({"s1": ops}, epoch, partition)
            assert applied.outcomes == {"s1": Acknowledged()}
            assert routed in unpack_entries((await c.flows("s1")).entries)


def test_the_data_plane_onos_needs_an_address(etcd_server: TestEtcd) -> None:
    with pytest.raises(BadInput, match="ONOS"):
        SouthboundProcess(etcd_server.access(), TOKEN, "b1", "127.0.0.1:0", data_plane="onos")
