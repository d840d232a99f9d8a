"""Partitions that a changed map no longer has are withdrawn, whoever takes them for its own."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from configurators.engine.partition_map import Node, PartitionMap
from configurators.environment import Environment
from configurators.state.spaces import LoadedSpace, with_map, with_settled_map
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Stored, StoreUnavailable, WatchBatch
from configurators.store.keys import SPACES, locks_of, owner_key
from configurators.store.model import SpaceDoc
from sdn.emulator import EmulatedNetwork
from sdn.outcomes import Acknowledged
from tests.configurators.southbound.support import (
    LINE,
    NAMES,
    PARTITION,
    Client,
    adds,
    client,
    controllers,
    entry,
    on_switch,
    process,
    store,
    view,
)
from tests.etcd import TestEtcd
from tests.support import until

KEY = SPACES + "stocks"
ONE = PartitionMap("legs")
THREE = PartitionMap("legs", Node(3))


def recut(doc: SpaceDoc, partition_map: PartitionMap) -> SpaceDoc:
    """The space after a change of its map is over."""
    return with_settled_map(with_map(doc, 0, partition_map), 0)


class Late:
    """Changes of spaces are not heard of until `told` is set, and then one by one."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.fails = 0  # reads of the space that get no answer

    def environment(self) -> Environment:
        late = self

        class LateEtcd(Etcd):
            def watch(self, prefix: str, after: int) -> AsyncGenerator[WatchBatch, None]:
                return self._late(after) if prefix == SPACES else super().watch(prefix, after)

            async def _late(self, after: int) -> AsyncGenerator[WatchBatch, None]:
                await late.told.wait()
                async for batch in super().watch(SPACES, after):
                    for event in batch.events:
                        yield WatchBatch([event], event.revision)

            async def get(self, key: str) -> Stored | None:
                if key == KEY and late.fails:
                    late.fails -= 1
                    raise StoreUnavailable("no member answers")
                return await super().get(key)

        return Environment(store=LateEtcd)


@asynccontextmanager
async def plane(etcd_server: TestEtcd, late: Late) -> AsyncIterator[tuple[Etcd, Client, int]]:
    """A southbound process and a configurator's end of a stream; the epoch of the owner."""
    access = etcd_server.access()
    epoch = await store(access)
    async with (
        Etcd(access) as etcd,
        process(access, environment=late.environment()) as p,
        EmulatedNetwork(LINE, controllers(p)),
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
        yield etcd, c, epoch


async def until_refused_below(c: Client, epoch: int) -> None:
    """Wait until the process has heard of an epoch."""

    async def refused() -> bool:
        return (await c.apply({"s1": adds(1)}, epoch - 1)).stale is not None

    await until(refused)


@pytest.mark.parametrize("fails", [0, 1])
async def test_a_partition_is_gone_although_somebody_took_it_after_the_map_had_changed(
    etcd_server: TestEtcd, fails: int
) -> None:
    late = Late()
    late.fails = fails
    async with plane(etcd_server, late) as (etcd, c, epoch):
        await c.declare(epoch)
        await c.apply({"s1": adds(1, 2)}, epoch)
        assert await on_switch(c, "s1") == {entry(1), entry(2)}
        changed = recut(view().doc, THREE)
        revision = await etcd.put(KEY, encode(changed))
        lock = await etcd.put(locks_of(PARTITION) + "1", b"c9")  # c9 has not heard of the map
        await until_refused_below(c, lock)
        late.told.set()
        await c.until(lambda report: report.spaces >= revision)
        for name in LoadedSpace.of(changed).partitions():
            await c.declare(revision, partition=name)
        assert await on_switch(c, "s1") == set()
        assert late.fails == 0


async def test_a_partition_that_is_there_again_stays_with_its_new_owner(
    etcd_server: TestEtcd,
) -> None:
    late = Late()
    async with plane(etcd_server, late) as (etcd, c, _):
        gone = recut(view().doc, THREE)
        await etcd.put(KEY, encode(gone))
        revision = await etcd.put(KEY, encode(recut(gone, ONE)))
        epoch = await etcd.put(owner_key(PARTITION), b"c1")
        await c.declare(epoch, {"s1": [entry(1)]})
        await until_refused_below(c, epoch)
        late.told.set()
        await c.until(lambda report: report.spaces >= revision)
        applied = await c.apply({"s1": adds(2)}, epoch)  # it need not be declared again
        assert applied.outcomes == {"s1": Acknowledged()}
        assert await on_switch(c, "s1") == {entry(1), entry(2)}


async def test_an_owner_in_the_map_that_follows_is_not_refused(etcd_server: TestEtcd) -> None:
    """Owner keys are written before the map that they belong to."""
    late = Late()
    async with plane(etcd_server, late) as (etcd, c, _):
        gone = recut(view().doc, THREE)
        revision = await etcd.put(KEY, encode(gone))
        epoch = await etcd.put(owner_key(PARTITION), b"c1")
        await etcd.put("something", b"else")
        await until_refused_below(c, epoch)
        late.told.set()
        await c.until(lambda report: report.spaces >= revision)
        assert (await c.declare(epoch)).stale is not None
        revision = await etcd.put(KEY, encode(recut(gone, ONE)))
        await c.until(lambda report: report.spaces >= revision)
        assert (await c.declare(epoch)).stale is None
        assert (await c.apply({"s1": adds(1)}, epoch)).outcomes == {"s1": Acknowledged()}
