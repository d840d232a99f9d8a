"""Other shapes for a space that is in use: its records are indexed again, and nobody notices."""

import asyncio
from random import Random

import pytest

from configurators.state.spaces import LoadedSpace
from configurators.store.documents import decode_record, decode_space
from configurators.store.keys import RECORDS, SPACES
from configurators.store.model import Record
from configurators.streams.packing import pack_regions
from configurators.streams.task_numbers import Phase
from dispatcher.calls import RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Conflict, NotFound
from dispatcher.views import RecordView
from dzflow.errors import BadInput
from dzflow.index import BadShape, Shape
from dzflow.region import Region
from tests.dispatcher.support import (
    SCHEMA,
    TIMEOUT,
    World,
    phase_of,
    random_filter,
    specs,
    views,
    world,
)
from tests.dispatcher.whole import Mode, Whole, whole
from tests.etcd import TestEtcd
from tests.support import until

# Leading bits of price, volume and symbol: cells that are far too large, and smaller ones.
COARSE: list[Shape] = [(2, 0, 0)]
FINE: list[Shape] = [(8, 0, 0), (8, 0, 2), (5, 0, 2), (3, 0, 0)]


async def over(d: Dispatcher) -> bool:
    """Whether the shapes of the space are changed."""
    return not d.status.space("stocks").changing


async def stored(w: World | Whole) -> list[Record]:
    return [decode_record(item.value) for item in (await w.etcd.range(RECORDS)).items]


async def indexed(w: World | Whole) -> bool:
    """Whether all records have the regions that the stored shapes give them."""
    document = await w.etcd.get(SPACES + "stocks")
    assert document
    space = LoadedSpace.of(decode_space(document.value))
    return all(
        {v: pack_regions(r) for v, r in space.regions(record.filter).items()} == record.regions
        for record in await stored(w)
    )


def as_seen(record: RecordView) -> tuple[object, ...]:
    """What users see of their last operation."""
    timing, done = record.timing, record.acknowledged
    return record.filter, record.state, timing, done, record.flow_ops, record.updating


@pytest.mark.parametrize("mode", ["sna", "sea"])
async def test_shapes_are_changed_under_live_records(etcd_server: TestEtcd, mode: Mode) -> None:
    rng = Random(3)
    async with (
        whole(etcd_server.access(), mode=mode) as w,
        w.dispatcher() as d,
        w.dispatcher() as other,
    ):
        await d.put_space("stocks", SCHEMA)
        views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
        wants = [RecordSpec("h3", "stocks", random_filter(rng)) for _ in range(80)]
        before = views(await d.begin("subscription", wants, wait=TIMEOUT))
        await until(lambda: other.status.spaces())

        async def churn() -> None:
            ids = [record.id for record in before[:6]]
            for id in ids:
                ask = RecordSpec("h2", "stocks", random_filter(rng))
                [made] = views(await other.begin("subscription", [ask], wait=TIMEOUT))
                answer = await other.update("subscription", id, random_filter(rng), wait=TIMEOUT)
                assert answer.status == 200, answer.problem
                views(await other.end("subscription", [made.id], wait=TIMEOUT))

        for shapes in (COARSE, FINE):
            _, view = await asyncio.gather(churn(), d.put_shapes("stocks", 0, shapes))
            assert view.shapes == [[0, 0, 0], *map(list, shapes)]
            assert [(axis.attribute, axis.bits > 2) for axis in view.axes][:1] == [("price", True)]
            await until(lambda: over(d))
            assert await indexed(w)
            await w.check_flows(d)
        now = {r.id: r for r in (await d.records("subscription", limit=1000)).items}
        assert len(now) == 80
        for record in before[6:]:
            assert as_seen(now[record.id]) == as_seen(record)
        # The same again changes nothing.
        await d.put_shapes("stocks", 0, FINE)
        await until(lambda: over(d))
        assert {r.id: r for r in (await d.records("subscription", limit=1000)).items} == now
        assert d.queue() == (0, 0)


async def test_records_keep_their_regions_where_switches_refuse_others(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        records = views(await d.begin("subscription", specs(40), wait=TIMEOUT))
        before = w.installed()
        full = records[7].id
        w.refuse(lambda task: "full" if task.id == full and phase_of(task) is Phase.GROW else None)
        await d.put_shapes("stocks", 0, COARSE)
        await until(lambda: over(d))
        now = {record.id: record for record in await stored(w)}
        kept = [record.id for record in records if now[record.id].regions == before_regions(record)]
        assert kept == [full]
        assert as_seen(await d.record(full)) == as_seen(records[7])
        assert (await d.record(full)).reason is None
        assert w.installed() == await w.expected() != before
        # The same call tries it again.
        w.refuse(lambda _: None)
        await d.put_shapes("stocks", 0, COARSE)
        await until(lambda: over(d))
        assert await indexed(w)
        assert w.installed() == await w.expected()


def before_regions(record: RecordView) -> dict[int, bytes]:
    return {0: pack_regions(tuple(Region.parse(text) for text in record.regions))}


async def test_a_change_of_shapes_goes_on_when_its_dispatcher_dies(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(lease_ttl=2) as alive:
        records = views(await alive.begin("subscription", specs(50), wait=TIMEOUT))
        async with w.dispatcher(lease_ttl=2) as dying:
            w.hold()
            asked = len(w.received())
            assert (await dying.put_shapes("stocks", 0, COARSE)).changing
            await until(
                lambda: any(phase_of(task) is Phase.GROW for _, task in w.received()[asked:])
            )
        await w.release()

        async def done() -> bool:
            return await over(alive) and await indexed(w)

        await until(lambda: alive.status.shapes("stocks").shapes == [[0, 0, 0], [2, 0, 0]])
        await until(done)
        assert w.installed() == await w.expected()
        for record in records:
            assert as_seen(await alive.record(record.id)) == as_seen(record)


async def test_what_was_written_before_is_carried_out_as_it_was_written(
    etcd_server: TestEtcd,
) -> None:
    asks = [
        RecordSpec("h1", "stocks", {"volume": {"gte": 9_000 * n, "lt": 9_000 * n + 300}})
        for n in range(10)
    ]
    async with world(etcd_server.access()) as w, w.dispatcher(lease_ttl=2) as alive:
        await alive.put_shapes("stocks", 0, [(0, 8, 0)])
        await until(lambda: over(alive))
        async with w.dispatcher(lease_ttl=2) as dying:
            w.hold()
            views(await dying.begin("subscription", asks, wait=0))
            await until(lambda: len(w.received()) >= len(asks))
            told = {partition for partition, _ in w.received()}
            # Without a shape for volumes, they belong to another partition.
            await alive.put_shapes("stocks", 0, COARSE)
        await w.release()

        async def done() -> bool:
            settled = all(record.state == "active" for record in await stored(w))
            return settled and await over(alive) and await indexed(w)

        await until(done)
        assert w.installed() == await w.expected()
        assert not told & w.installed().keys()


async def test_users_change_records_that_are_being_indexed_again(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        first, second, *_ = views(await d.begin("subscription", specs(3), wait=TIMEOUT))
        w.hold()
        await d.put_shapes("stocks", 0, COARSE)

        async def busy() -> bool:
            return any(record.next for record in await stored(w))

        await until(busy)
        assert not (await d.record(first.id)).updating
        wider = {"price": {"gte": 0, "lt": 900}}
        # Whether they wait for the result or not, users need not know that something is going on.
        calls = asyncio.gather(
            d.update("subscription", first.id, wider, wait=0),
            d.end("subscription", [second.id], wait=TIMEOUT),
        )
        await w.release()
        updated, (ended,) = await calls
        assert (updated.status, ended.status) == (202, 200)

        async def done() -> bool:
            return await over(d) and not any(record.open for record in await stored(w))

        await until(done)
        assert (await d.record(first.id)).filter == wider
        assert await indexed(w)
        assert w.installed() == await w.expected()


async def test_shapes_that_cannot_be_used_are_refused(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        before = d.status.shapes("stocks")
        with pytest.raises(Conflict, match="has version 0 by now; learn them again"):
            await d.put_shapes("stocks", 1, COARSE)
        with pytest.raises(NotFound):
            await d.put_shapes("bonds", 0, COARSE)
        for wrong in ((1, 2), (99, 0, 0), (-1, 0, 0)):
            with pytest.raises(BadShape, match="does not fit the axes"):
                await d.put_shapes("stocks", 0, [wrong])
        many = [(n % 13, n // 13, 0) for n in range(65)]
        with pytest.raises(BadShape, match=r"64 shapes|index\.shapes is 64"):
            await d.put_shapes("stocks", 0, [*many, (1, 1, 1)])
        await w.space("bonds", 2, "lpm")
        await until(lambda: len(d.status.spaces()) == 2)
        with pytest.raises(BadInput, match="zorder, which has no shapes"):
            await d.put_shapes("bonds", 0, COARSE)
        assert d.status.shapes("stocks") == before
        w.hold()
        views(await d.begin("subscription", specs(1), wait=0))
        await d.put_shapes("stocks", 0, COARSE)
        with pytest.raises(Conflict, match="is being changed"):
            await d.delete_space("stocks")
        # Somebody has thought better of it.
        await d.put_shapes("stocks", 0, FINE)
        await w.release()
        await until(lambda: over(d))
        assert d.status.shapes("stocks").shapes == [[0, 0, 0], *map(list, FINE)]
        assert await indexed(w)
        assert w.installed() == await w.expected()


async def test_a_repeated_call_is_answered_while_its_record_is_indexed_again(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        (made,) = views(await d.begin("subscription", specs(1), wait=TIMEOUT, key="k"))
        w.hold()
        await d.put_shapes("stocks", 0, COARSE)

        async def busy() -> bool:
            return any(record.reindexing for record in await stored(w))

        await until(busy)
        (again,) = await d.begin("subscription", specs(1), wait=0, key="k")
        assert (again.status, views([again])[0].id) == (201, made.id)
        await w.release()
        await until(lambda: over(d))
