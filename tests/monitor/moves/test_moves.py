"""Moves on a running control plane: where partitions may not go, and who remembers moves."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from configurators.engine.partition_map import PartitionMap
from configurators.environment import Clock
from configurators.store.documents import encode
from configurators.store.etcd.client import Delete, Etcd, Put
from configurators.store.keys import CONFIGURATORS, move_key, owner_key, wanted_key
from configurators.store.model import MapPlan, Move, Wanted
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Conflict
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.workers import Workers
from dispatcher.options import DispatcherOptions
from monitor.monitor import Monitor
from monitor.moves.conditions import owner_may_change
from monitor.moves.decision import MoveLimits
from monitor.moves.requests import MoveRequests
from tests.etcd import TestEtcd
from tests.rest import SCHEMA
from tests.stack import TOKEN, Stack, StackOptions
from tests.support import until, until_sync

STAYS, LEAVES = "configurator-0", "configurator-1"
WANTED = wanted_key("configurators")


@pytest.fixture(scope="module")
def two(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(configurators=2, partitions=3)) as stack:
        make_space(stack)
        yield stack


def make_space(stack: Stack) -> None:
    """Make a space, and wait until the owners of its partitions are known, too."""
    stack.run(stack.dispatcher.put_space("stocks", SCHEMA))
    until_sync(lambda: stack.dispatcher.catalogue.owners)


@asynccontextmanager
async def fewer_wanted(stack: Stack) -> AsyncIterator[None]:
    """One configurator less is wanted: the one with the higher number is to leave."""
    etcd, workers = stack.dispatcher.etcd, stack.dispatcher.workers
    revision = await etcd.put(WANTED, encode(Wanted(0)))
    await until(lambda: workers.wanted_at("configurators") == revision)
    try:
        yield
    finally:
        revision = await etcd.put(WANTED, encode(Wanted(1)))
        await until(lambda: workers.wanted_at("configurators") == revision)


async def bring(stack: Stack, to: str) -> str:
    """A partition that belongs to a configurator now."""
    partition, (owner, _) = sorted(stack.dispatcher.catalogue.owners.items())[0]
    if owner != to:
        assert await stack.monitor.moves.move(partition, to, "the test needs it there")
    return partition


def test_no_partition_goes_to_a_configurator_that_is_to_leave(two: Stack) -> None:
    async def ask() -> None:
        partition = await bring(two, STAYS)
        async with fewer_wanted(two):
            with pytest.raises(Conflict, match=f"{LEAVES} is to leave"):
                await two.monitor.moves.ask(partition, LEAVES, "for a test")
        assert two.dispatcher.catalogue.moves == {}

    two.run(ask())


def test_a_move_is_counted_by_the_process_that_carries_it_out(two: Stack) -> None:
    async def move() -> None:
        outcomes = two.dispatcher.metrics.migrations.outcomes
        partition, (owner, _) = sorted(two.dispatcher.catalogue.owners.items())[0]
        before = outcomes["done"]
        assert await bring(two, LEAVES if owner == STAYS else STAYS) == partition
        await until(lambda: outcomes["done"] == before + 1)

    two.run(move())


def test_a_partition_goes_away_from_a_configurator_that_is_to_leave(two: Stack) -> None:
    async def ask() -> None:
        partition = await bring(two, LEAVES)
        async with fewer_wanted(two):
            assert await two.monitor.moves.move(partition, STAYS, "for a test")

    two.run(ask())


@asynccontextmanager
async def own_knowledge(stack: Stack) -> AsyncIterator[Catalogue]:
    """A catalogue that nobody else uses, so that a test may change what it knows."""
    catalogue = Catalogue(stack.dispatcher.etcd)
    await catalogue.start()
    try:
        yield catalogue
    finally:
        await catalogue.stop()


def is_moving(catalogue: Catalogue, partition: str) -> None:
    source, epoch = catalogue.owners[partition]
    catalogue.moves[partition] = Move("m1", source, epoch, STAYS, "copying", "a test", 0.0), 1


def owner_is_dead(catalogue: Catalogue, partition: str) -> None:
    catalogue.owners[partition] = "configurator-7", 3


def schema_changes(catalogue: Catalogue, partition: str) -> None:  # noqa: ARG001
    catalogue.spaces.put(replace(catalogue.spaces.named("stocks").doc, by="d1"))


def map_changes(catalogue: Catalogue, partition: str) -> None:  # noqa: ARG001
    doc = catalogue.spaces.named("stocks").doc
    target = PartitionMap("legs")
    plan = MapPlan("p1", doc.name, doc.current, 0, 0, target, {}, (), "cutting", 0.0, ())
    catalogue.plans[doc.number] = plan, 1


@pytest.mark.parametrize(
    ("hinder", "text"),
    [
        (is_moving, f"is moving to {STAYS} already"),
        (owner_is_dead, "the owner configurator-7 of partition .* is not alive"),
        (schema_changes, "the index of the partition's space is being changed"),
        (map_changes, "the partition map of 'stocks' is being changed"),
    ],
)
def test_a_move_is_refused_while_something_else_changes_the_partition(
    two: Stack, hinder: Callable[[Catalogue, str], None], text: str
) -> None:
    async def ask() -> None:
        d = two.dispatcher
        partition = await bring(two, STAYS)
        async with own_knowledge(two) as known:
            hinder(known, partition)
            moves = MoveRequests(d.etcd, known, d.fleet, d.workers, Clock(), lambda _: "an id")
            with pytest.raises(Conflict, match=text):
                await moves.ask(partition, LEAVES, "for a test")
        assert await d.etcd.get(move_key(partition)) is None

    two.run(ask())


def test_there_is_nothing_to_move_in_mode_sea(two: Stack) -> None:
    d = two.dispatcher
    locked = Catalogue(d.etcd, locked=True)
    moves = MoveRequests(d.etcd, locked, d.fleet, d.workers, Clock(), lambda _: "an id")
    with pytest.raises(Conflict, match="in mode sea"):
        two.run(moves.ask(next(iter(d.catalogue.owners)), LEAVES, "for a test"))


def test_a_move_is_refused_by_one_who_has_not_heard_that_fewer_are_wanted(two: Stack) -> None:
    async def ask() -> None:
        dispatcher = two.dispatcher
        partition = await bring(two, STAYS)
        late = Workers(dispatcher.etcd)  # it has not read what is wanted
        catalogue, fleet = dispatcher.catalogue, dispatcher.fleet
        asking = MoveRequests(dispatcher.etcd, catalogue, fleet, late, Clock(), lambda _: "an id")
        async with fewer_wanted(two):
            with pytest.raises(Conflict, match="changed meanwhile"):
                await asking.ask(partition, LEAVES, "for a test")

    two.run(ask())


def test_a_move_that_takes_longer_than_it_may_fails(etcd_server: TestEtcd) -> None:
    options = StackOptions(configurators=2, partitions=3, moves=MoveLimits(copy=-1.0))
    with Stack(etcd_server.access(), options) as stack:
        make_space(stack)

        async def ask() -> str:
            partition, (source, _) = sorted(stack.dispatcher.catalogue.owners.items())[0]
            target = LEAVES if source == STAYS else STAYS
            with pytest.raises(Conflict) as refused:
                await stack.monitor.moves.move(partition, target, "for a test")
            assert stack.dispatcher.catalogue.owners[partition][0] == source
            return str(refused.value)

        # The owner key may have just changed: then the move is refused for that reason.
        until_sync(lambda: "has not copied the partition within -1 s" in stack.run(ask()))
        until_sync(lambda: stack.dispatcher.metrics.migrations.outcomes["failed"])


def test_a_move_that_makes_no_sense_does_not_hold_up_others(two: Stack) -> None:
    async def ask() -> None:
        etcd, catalogue = two.dispatcher.etcd, two.dispatcher.catalogue
        partition, (source, _) = sorted(catalogue.owners.items())[0]
        senseless = Move("m0", source, 1, "nobody", "asked", "for a test", 0.0)
        await etcd.transact([], [Put(move_key(" no partition"), encode(senseless))])
        try:
            await until(lambda: " no partition" in catalogue.moves)
            target = LEAVES if source == STAYS else STAYS
            assert await two.monitor.moves.move(partition, target, "for a test")
        finally:
            await etcd.transact([], [Delete(move_key(" no partition"))])
            await until(lambda: not catalogue.moves)

    two.run(ask())


async def test_an_owner_does_not_change_if_another_number_is_wanted_by_now(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        epoch = await etcd.put(owner_key("1.0/all"), b"c1")
        registered = await etcd.put(CONFIGURATORS + "c2", b"it is alive")
        wanted_at = await etcd.put(WANTED, encode(Wanted(2)))
        move = Move("m1", "c1", epoch, "c2", "handing over", "for a test", 0.0)
        compares = owner_may_change("1.0/all", move, registered, wanted_at)
        change = Put(owner_key("1.0/all"), b"c2")
        fewer = await etcd.put(WANTED, encode(Wanted(1)))
        assert not (await etcd.transact(compares, [change])).succeeded
        compares = owner_may_change("1.0/all", move, registered, fewer)
        assert (await etcd.transact(compares, [change])).succeeded


def test_every_monitor_remembers_the_moves_of_the_leader(two: Stack) -> None:
    async def move() -> None:
        options = DispatcherOptions(partitions=3)
        async with (
            Dispatcher(two.access, TOKEN, options) as other,
            Monitor(other) as next_leader,
        ):
            partition, (source, _) = sorted(two.dispatcher.catalogue.owners.items())[0]
            target = LEAVES if source == STAYS else STAYS
            assert await two.monitor.moves.move(partition, target, "for a test")
            await until(lambda: next_leader.balancer.status().past)
            (past,) = next_leader.balancer.status().past
            assert (past.partition, past.source, past.target) == (partition, source, target)
            assert past.done
            assert not next_leader.leadership.leads
            assert two.monitor.balancer.status().past[-1].partition == partition

    two.run(move())
