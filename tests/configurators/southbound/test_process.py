"""Southbound processes: the fence, restarts, shared switches, and reports."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from configurators.environment import Environment
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.southbound.rendezvous import share
from configurators.state.network import first_network, with_host
from configurators.state.spaces import (
    LoadedSpace,
    new_space,
    new_version,
    with_current,
    without_version,
)
from configurators.store.documents import decode_process, encode
from configurators.store.etcd.client import Compacted, Etcd, WatchBatch
from configurators.store.keys import GENERATION, NETWORK, SOUTHBOUND, SPACES, owner_key
from configurators.store.registration import Superseded
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
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.pipeline import MATCH_PRIORITY
from sdn.network.topology import Host
from tests.certificates import make_keys
from tests.configurators.southbound.support import (
    FOUR,
    LINE,
    NAMES,
    PARTITION,
    SCHEMA,
    SPACE,
    TOKEN,
    Client,
    adds,
    child,
    client,
    controllers,
    entry,
    on_switch,
    process,
    published,
    running,
    store,
    view,
)
from tests.etcd import TestEtcd
from tests.onos_standin import OnosStandIn
from tests.sdn.southbound.planes import switch_keys
from tests.support import WAIT, until

sweeping = partial(process, sweep_after=0.0)
"""A process that removes entries of deleted spaces at once."""


async def until_gone(client: Client, *switches: str) -> None:
    """Wait until switches have no entries of the space."""

    async def gone() -> bool:
        return not any([await on_switch(client, switch) for switch in switches])

    await until(gone)


async def sweep(etcd: Etcd, client: Client) -> None:
    """Have all switches compared because of a deleted space, and wait until that is done."""
    other = new_space("other", SPACE + 1, SCHEMA, "legs", 1)
    stored = await etcd.put(SPACES + "other", encode(other))
    # Only a space that the process knows can be seen to be deleted.
    await client.until(lambda report: report.spaces >= stored)
    partition = LoadedSpace.of(other).partitions()[0]
    await client.declare(1, partition=partition)
    add = pack_ops([FlowOp(Change.ADD, entry(1, space=SPACE + 1))])
    applied = await client.apply({"s3": add}, 1, partition)  # the last to be compared
    assert applied.outcomes == {"s3": Acknowledged()}
    await etcd.delete(SPACES + "other")

    async def swept() -> bool:
        return not await on_switch(client, "s3", SPACE + 1)

    await until(swept)


# One process


async def test_operations_are_acknowledged_and_read_back(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
    ):
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
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
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
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
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
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
        Etcd(access) as etcd,
    ):
        await c.holding(*NAMES)
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
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
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


async def test_entries_of_a_deleted_space_are_removed_if_no_configurator_clears_them(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with Etcd(access) as etcd, EmulatedNetwork(LINE) as network, sweeping(access) as p:
        network.set_controllers(controllers(p))
        async with client(p.listen) as c:
            await c.holding(*NAMES)
            await c.declare(epoch)
            await c.apply({"s1": adds(1, 2), "s2": adds(3)}, epoch)
            await etcd.delete(SPACES + "stocks")
            await until_gone(c, "s1", "s2")


async def test_entries_of_a_deleted_version_are_removed_from_a_switch_that_comes_back(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with Etcd(access) as etcd, EmulatedNetwork(LINE) as network, sweeping(access) as p:
        network.set_controllers(controllers(p))
        async with client(p.listen) as c:
            await c.holding(*NAMES)
            await c.declare(epoch)
            await c.apply({"s1": adds(1, 2), "s2": adds(3)}, epoch)
            network.set_controllers([])
            await c.holding()
            doc = with_current(new_version(view().doc, SCHEMA, 1), 1)
            await etcd.put(SPACES + "stocks", encode(without_version(doc, 0)))
            network.set_controllers(controllers(p))
            await c.holding(*NAMES)
            await until_gone(c, "s1", "s2")


async def test_entries_of_a_space_that_was_never_seen_stay(
    etcd_server: TestEtcd,
) -> None:
    """As when etcd is lost: it may be restored later."""
    access = etcd_server.access()
    epoch = await store(access)
    async with Etcd(access) as etcd, EmulatedNetwork(LINE) as network:
        async with process(access) as p:
            network.set_controllers(controllers(p))
            async with client(p.listen) as c:
                await c.holding(*NAMES)
                await c.declare(epoch)
                await c.apply({"s1": adds(1, 2), "s2": adds(3)}, epoch)
        await etcd.delete(SPACES + "stocks")
        async with sweeping(access, openflow=p.openflow) as p, client(p.listen) as c:
            await c.holding(*NAMES)
            await sweep(etcd, c)
            assert await on_switch(c, "s1") == {entry(1), entry(2)}
            assert await on_switch(c, "s2") == {entry(3)}


async def test_entries_of_a_space_that_a_later_snapshot_lacks_stay(
    etcd_server: TestEtcd,
) -> None:
    compact = asyncio.Event()

    class Compacting(Etcd):
        """Loses the history of spaces when it is told to."""

        def watch(self, prefix: str, after: int) -> AsyncGenerator[WatchBatch, None]:
            if prefix == SPACES and not compact.is_set():
                return self._lose_history()
            return super().watch(prefix, after)

        async def _lose_history(self) -> AsyncGenerator[WatchBatch, None]:
            await compact.wait()
            raise Compacted("it is gone")
            yield

    access = etcd_server.access()
    epoch = await store(access)
    async with (
        Etcd(access) as etcd,
        EmulatedNetwork(LINE) as network,
        process(access, environment=Environment(store=Compacting), sweep_after=0.0) as p,
    ):
        network.set_controllers(controllers(p))
        async with client(p.listen) as c:
            await c.holding(*NAMES)
            await c.declare(epoch)
            await c.apply({"s1": adds(1, 2)}, epoch)
            await etcd.delete(SPACES + "stocks")
            compact.set()
            await sweep(etcd, c)
            assert await on_switch(c, "s1") == {entry(1), entry(2)}


async def test_several_declarations_are_compared_in_one_go(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
        outcomes = await asyncio.gather(
            *(c.declare(epoch, {"s2": [entry(n)]}, partition=f"p{n}") for n in range(1, 30))
        )
        assert all(a.outcomes == dict.fromkeys(NAMES, Acknowledged()) for a in outcomes)
        assert await on_switch(c, "s2") == {entry(n) for n in range(1, 30)}


async def test_reports_follow_switches_and_ports_that_go_and_come(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)) as network,
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
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
    await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)) as network,
        client(p.listen) as c,
        Etcd(access) as etcd,
    ):
        await c.holding(*NAMES)
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


# Several processes


def test_shares_are_disjoint_complete_and_stable() -> None:
    switches = [f"s{n}" for n in range(100)]
    everybody = {"b1", "b2", "b3"}
    shares = {me: share(switches, everybody, me) for me in everybody}
    assert sorted(s for mine in shares.values() for s in mine) == sorted(switches)
    assert all(len(mine) <= 34 for mine in shares.values())
    for me in ("b1", "b2"):
        assert len(shares[me] & share(switches, {"b1", "b2"}, me)) > 20
    assert share(switches, {"b1"}, "b1") == set(switches)


async def test_two_processes_share_the_switches_and_one_takes_over(etcd_server: TestEtcd) -> None:
    both = {me: share([s.id for s in FOUR.switches], {"b1", "b2"}, me) for me in ("b1", "b2")}
    assert all(both.values())

    access = etcd_server.access()
    epoch = await store(access, FOUR)
    async with EmulatedNetwork(FOUR) as network, process(access, "b1") as one:
        async with process(access, "b2") as two, client(one.listen) as c:
            # The first must have heard of the second: it would claim all switches that connect.
            await c.until(lambda report: {*report.switches, *report.down} == both["b1"])
            network.set_controllers(controllers(one, two))
            async with client(two.listen) as d:
                await c.holding(*both["b1"])
                await d.holding(*both["b2"])
                for end, me in ((c, "b1"), (d, "b2")):
                    await end.declare(epoch)
                    applied = await end.apply({s: adds(1) for s in both[me]}, epoch)
                    assert set(applied.outcomes.values()) == {Acknowledged()}
                foreign = await c.apply({s: adds(2) for s in both["b2"]}, epoch)
                assert all(isinstance(o, Undefined) for o in foreign.outcomes.values())
                assert c.report is not None
                assert not c.report.down
        # The second one is gone; the first has its switches, and nothing on them is lost.
        async with client(one.listen) as c:
            await c.holding(*both["b1"], *both["b2"])
            for switch in both["b2"]:
                assert await on_switch(c, switch) == {entry(1)}
            taken = sorted(both["b2"])
            outcome = (await c.apply({taken[0]: adds(2)}, epoch)).outcomes[taken[0]]
            assert isinstance(outcome, Undefined)
            await c.declare(epoch, {s: [entry(1)] for s in taken}, taken)
            everywhere = both["b1"] | both["b2"]
            applied = await c.apply({s: adds(2) for s in everywhere}, epoch)
            assert applied.outcomes == dict.fromkeys(everywhere, Acknowledged())
            for switch in everywhere:
                assert await on_switch(c, switch) == {entry(1), entry(2)}


async def test_a_process_that_comes_gets_its_share_and_they_count_as_new(
    etcd_server: TestEtcd,
) -> None:
    both = {me: share([s.id for s in FOUR.switches], {"b1", "b2"}, me) for me in ("b1", "b2")}

    access = etcd_server.access()
    epoch = await store(access, FOUR)
    everywhere = both["b1"] | both["b2"]
    async with (
        EmulatedNetwork(FOUR) as network,
        process(access, "b1") as one,
        client(one.listen) as c,
    ):
        network.set_controllers(controllers(one))
        await c.holding(*everywhere)
        await c.declare(epoch)
        await c.apply({s: adds(1) for s in everywhere}, epoch)
        # From then on, a switch is the other's when it has been connected to it for a while.
        await published(access, "b1", lambda it: set(it.connected) == everywhere)
        async with process(access, "b2", stable_after=0.2) as two, client(two.listen) as d:
            network.set_controllers(controllers(one, two))
            await c.holding(*both["b1"])
            await d.holding(*both["b2"])
            await d.declare(epoch, {s: [entry(2)] for s in both["b2"]})
            for switch in both["b2"]:
                assert await on_switch(d, switch) == {entry(2)}
        # What the other has made of them meanwhile stays, until it is declared again.
        await c.holding(*everywhere)
        for switch in both["b2"]:
            assert await on_switch(c, switch) == {entry(2)}
        gone = [set(h.switches) | h.down.keys() for h in c.seen]
        assert both["b1"] in gone


async def test_the_switches_of_a_killed_process_are_taken_over(etcd_server: TestEtcd) -> None:
    both = {me: share([s.id for s in FOUR.switches], {"b1", "b2"}, me) for me in ("b1", "b2")}

    access = etcd_server.access()
    epoch = await store(access, FOUR)
    async with (
        EmulatedNetwork(FOUR) as network,
        process(access, "b1") as one,
        client(one.listen) as c,
    ):
        async with child(access, "b2") as two, client(two.listen) as d:
            network.set_controllers(controllers(one, two))
            await c.holding(*both["b1"])

            async def added() -> bool:
                """Not if it has stood still for a moment, and lost its switches with its lease."""
                await d.holding(*both["b2"])
                await d.declare(epoch)
                applied = await d.apply({s: adds(1) for s in both["b2"]}, epoch)
                return applied.outcomes == dict.fromkeys(both["b2"], Acknowledged())

            await until(added)
            await two.kill()
            await asyncio.wait_for(d.stream.closed.wait(), WAIT)
        await c.holding(*both["b1"], *both["b2"])
        for switch in both["b2"]:
            assert await on_switch(c, switch) == {entry(1)}


async def test_of_two_processes_with_one_id_the_later_one_stays(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    await store(access)
    first = SouthboundProcess(access, TOKEN, "b1", "127.0.0.1:0", "127.0.0.1:0")
    working = asyncio.create_task(first.run(asyncio.Event()))
    async with asyncio.timeout(WAIT):
        await first.ready.wait()
    async with process(access, "b1") as second:
        with pytest.raises(Superseded):
            await asyncio.wait_for(working, WAIT)
        async with Etcd(access) as etcd:
            stored = await etcd.get(SOUTHBOUND + "b1")
            assert stored
            assert decode_process(stored.value).address == second.listen


async def test_a_process_that_lost_its_lease_registers_again_and_releases_its_switches(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access, ttl=6) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
        Etcd(access) as etcd,
    ):
        await c.holding(*NAMES)
        await c.declare(epoch)
        await c.apply({"s1": adds(1)}, epoch)
        registered = await etcd.get(SOUTHBOUND + "b1")
        assert registered
        await etcd.revoke(registered.lease)
        await c.until(lambda h: not h.switches and not h.down)
        await c.holding(*NAMES)
        again = await etcd.get(SOUTHBOUND + "b1")
        assert again
        assert again.revision > registered.revision
        assert isinstance((await c.apply({"s1": adds(2)}, epoch)).outcomes["s1"], Undefined)
        assert await on_switch(c, "s1") == {entry(1)}


async def test_a_switch_is_claimed_back_from_a_process_that_is_not_responsible_for_it(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        process(access) as p,
        EmulatedNetwork(LINE, controllers(p)) as network,
        client(p.listen) as c,
        Etcd(access) as etcd,
    ):
        await c.holding(*NAMES)
        await c.declare(epoch)
        seen = len(c.seen)

        def was_missing(switch: str) -> bool:
            return any(switch not in {*h.switches, *h.down} for h in c.seen[seen:])

        generation = await etcd.put(GENERATION, b"somebody")
        pipeline = first_network(LINE, "legs", 1).pipeline
        settings = DriverOptions(port=0, timeout=WAIT, generation=generation, discover=False)
        async with OpenFlowDriver(LINE, pipeline, lambda _: None, {}, settings) as other:
            network.set_controllers([*controllers(p), ("127.0.0.1", other.port)])
            # In between it does not hold it, so that it counts as new.
            await c.until(lambda _: all(map(was_missing, NAMES)))
            await c.holding(*NAMES)
        outcome = (await c.apply({"s1": adds(2)}, epoch)).outcomes["s1"]
        assert isinstance(outcome, Undefined)
        await c.declare(epoch)
        applied = await c.apply({"s1": adds(2)}, epoch)
        assert applied.outcomes == {"s1": Acknowledged()}


# ONOS


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
