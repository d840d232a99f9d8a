"""A monitor that no longer leads changes nothing, whatever it still believes."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from configurators.engine.partition_map import Node, PartitionMap
from configurators.environment import Clock
from configurators.store.documents import decode_move, decode_plan
from configurators.store.etcd.client import Access, Compare, Delete, Etcd, Op, TxnResult, unchanged
from configurators.store.keys import LEADER, OWNERS, SPACES, move_key, plan_key
from dispatcher.errors import Conflict
from dispatcher.metrics import PlanMetrics
from monitor.moves.mover import Mover
from monitor.plans.driver import PlanDriver
from tests.etcd import TestEtcd
from tests.rest import SCHEMA
from tests.stack import Stack, StackOptions
from tests.support import until, until_sync

SPACE = "stocks"
FORMER = unchanged(LEADER, 1)  # the fence of a term that is over


class Watched(Etcd):
    """A client that remembers which of its transactions etcd has accepted."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.accepted: list[bool] = []

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        result = await super().transact(compares, then, otherwise)
        self.accepted.append(result.succeeded)
        return result


@pytest.fixture(scope="module")
def leaderless(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane in which no monitor takes moves and plans further."""
    with Stack(etcd_server.access(), StackOptions(configurators=2, partitions=3)) as stack:
        stack.run(stack.dispatcher.put_space(SPACE, SCHEMA))
        until_sync(lambda: stack.dispatcher.catalogue.owners)
        stack.run(stack.monitor.__aexit__(None, None, None))
        yield stack


@asynccontextmanager
async def acting(work: Any) -> AsyncIterator[None]:
    """Have a former leader do its work meanwhile."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def other(stack: Stack, owner: str) -> str:
    return next(name for name in stack.dispatcher.fleet.configurators.processes if name != owner)


def test_a_former_leader_takes_no_move_further(leaderless: Stack) -> None:
    async def work() -> None:
        d = leaderless.dispatcher
        partition, (owner, _) = next(iter(d.catalogue.owners.items()))
        asked = await leaderless.monitor.moves.ask(partition, other(leaderless, owner), "a test")
        await until(lambda: partition in d.catalogue.moves)
        async with Watched(leaderless.access) as etcd:
            mover = Mover(etcd, d.catalogue, d.fleet, d.workers, Clock(), lambda _: None)
            async with acting(mover.run(FORMER)):
                await until(lambda: len(etcd.accepted) >= 2)
            assert not any(etcd.accepted)
        stored = await d.etcd.get(move_key(partition))
        assert stored
        assert decode_move(stored.value) == asked
        await d.etcd.transact([], [Delete(move_key(partition))])

    leaderless.run(work())


def test_a_former_leader_asks_for_no_move(leaderless: Stack) -> None:
    async def work() -> None:
        d = leaderless.dispatcher
        partition, (owner, _) = next(iter(d.catalogue.owners.items()))
        ask = leaderless.monitor.moves.ask
        with pytest.raises(Conflict):
            await ask(partition, other(leaderless, owner), "a test", "balancer", [FORMER])
        assert await d.etcd.get(move_key(partition)) is None

    leaderless.run(work())


def test_a_former_leader_takes_no_plan_further(leaderless: Stack) -> None:
    async def work() -> None:
        d = leaderless.dispatcher
        space = d.catalogue.spaces.named(SPACE)
        wanted = PartitionMap("legs", Node(5))
        number = space.current.map_number
        plan = await leaderless.monitor.plans.start(SPACE, 0, number, wanted, {})
        stored = [await d.etcd.range(prefix) for prefix in (SPACES, OWNERS)]
        async with Watched(leaderless.access) as etcd:
            moves = leaderless.monitor.moves
            driver = PlanDriver(etcd, d.catalogue, d.fleet, d.workers, moves, PlanMetrics())
            async with acting(driver.run(FORMER)):
                await until(lambda: len(etcd.accepted) >= 4)
            assert not any(etcd.accepted)
        after = [await d.etcd.range(prefix) for prefix in (SPACES, OWNERS)]
        assert [page.items for page in after] == [page.items for page in stored]
        left = await d.etcd.get(plan_key(space.number))
        assert left
        assert decode_plan(left.value) == plan

    leaderless.run(work())
