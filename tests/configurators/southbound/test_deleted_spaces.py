"""Entries of deleted spaces are removed from switches, and no others."""

import asyncio
from collections.abc import AsyncGenerator

from configurators.environment import Environment
from configurators.state.spaces import (
    LoadedSpace,
    new_space,
    new_version,
    with_current,
    without_version,
)
from configurators.store.documents import encode
from configurators.store.etcd.client import Compacted, Etcd, WatchBatch
from configurators.store.keys import SPACES
from configurators.streams.packing import pack_ops
from sdn.emulator import EmulatedNetwork
from sdn.outcomes import Acknowledged
from sdn.tables.flows import Change, FlowOp
from tests.configurators.southbound.support import (
    LINE,
    NAMES,
    SCHEMA,
    SPACE,
    Client,
    adds,
    client,
    controllers,
    entry,
    line,
    on_switch,
    process,
    store,
    view,
)
from tests.etcd import TestEtcd
from tests.support import until


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


async def test_entries_of_a_deleted_space_are_removed_if_no_configurator_clears_them(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    async with Etcd(access) as etcd, line(access, sweep_after=0.0) as (c, epoch, *_):
        await c.declare(epoch)
        await c.apply({"s1": adds(1, 2), "s2": adds(3)}, epoch)
        await etcd.delete(SPACES + "stocks")
        await until_gone(c, "s1", "s2")


async def test_entries_of_a_deleted_version_are_removed_from_a_switch_that_comes_back(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    async with Etcd(access) as etcd, line(access, sweep_after=0.0) as (c, epoch, network, p):
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
        async with (
            process(access, openflow=p.openflow, sweep_after=0.0) as p,
            client(p.listen) as c,
        ):
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
