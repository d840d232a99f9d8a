"""Quotas: a host and a space have a limit of records and bytes, with any number of dispatchers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from configurators.environment import Clock
from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Compacted, Etcd, KeyPage, Stored
from configurators.store.keys import record_key
from configurators.store.model import Record
from dispatcher.calls import Answer, RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import QuotaReached, TooLarge
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.usage import Quotas, Tally, Usage, weight
from tests.dispatcher.support import SCHEMA, TIMEOUT, problem, specs, world
from tests.etcd import TestEtcd
from tests.support import until

BIG = {"volume": {"in": list(range(0, 4000, 2))}}


def statuses(answers: Sequence[Answer]) -> list[int]:
    return [answer.status for answer in answers]


async def begin(d: Dispatcher, *wanted: RecordSpec) -> list[Answer]:
    return await d.begin("subscription", wanted, wait=TIMEOUT)


async def test_a_host_has_a_limit_of_records(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(quotas=Quotas(host_records=3, space_records=5)) as d,
    ):
        answers = await begin(d, *specs(10))
        assert statuses(answers) == [201] * 3 + [429] * 7
        assert problem(answers[-1]).type == "quota"
        assert "limits.host_records" in problem(answers[-1]).detail
        assert problem(answers[-1]).retry_after
        [more] = await d.begin("advertisement", specs(1), wait=TIMEOUT)
        assert more.status == 429
        others = await begin(d, *specs(5, "h2"))
        assert statuses(others) == [201] * 2 + [429] * 3
        assert "limits.space_records" in problem(others[-1]).detail
        assert len((await w.etcd.range("records/")).items) == 5
        # What ends makes room; what is refused for another reason does not use it up.
        ids = [answer.record.id for answer in answers[:2] if answer.record]
        assert statuses(await d.end("subscription", ids, wait=TIMEOUT)) == [200, 200]
        wrong = [RecordSpec("h1", "stocks", {"prise": 5}) for _ in range(9)]
        assert statuses(await begin(d, *wrong)) == [422] * 9
        w.refuse(lambda task: "the table is full" if task.regions else None)
        assert statuses(await begin(d, *specs(2))) == [502, 502]
        w.refuse(lambda _: None)
        assert statuses(await begin(d, *specs(4))) == [201, 201, 429, 429]


async def test_a_host_has_a_limit_of_bytes(etcd_server: TestEtcd) -> None:
    quota = 2 * weight(BIG) + weight({})
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(quotas=Quotas(host_bytes=quota)) as d,
    ):
        big = RecordSpec("h1", "stocks", BIG)
        answers = await begin(d, big, RecordSpec("h1", "stocks", {}), big, big)
        assert statuses(answers) == [201, 201, 201, 429]
        assert "limits.host_bytes" in problem(answers[-1]).detail
        assert answers[1].record
        assert answers[2].record
        small = answers[1].record.id
        assert (await d.update("subscription", small, BIG, wait=TIMEOUT)).status == 429
        large = answers[2].record.id
        assert (await d.update("subscription", large, {}, wait=TIMEOUT)).status == 200
        assert (await d.update("subscription", small, BIG, wait=TIMEOUT)).status == 200
        assert (await d.update("subscription", large, BIG, wait=TIMEOUT)).status == 429


async def test_what_was_stored_before_the_start_counts(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w:
        async with w.dispatcher() as d:
            assert statuses(await begin(d, *specs(3))) == [201] * 3
        async with w.dispatcher(quotas=Quotas(host_records=3)) as d:
            assert statuses(await begin(d, *specs(1))) == [429]


async def test_active_subscriptions_are_counted_apart_from_those_in_progress(
    etcd_server: TestEtcd,
) -> None:
    def active(d: Dispatcher) -> int:
        return d._parts.usage.active_subscriptions()

    async with world(etcd_server.access()) as w:
        async with w.dispatcher() as d:
            answers = await begin(d, *specs(3))
            await d.begin("advertisement", specs(2), wait=TIMEOUT)
            assert active(d) == 3
            w.refuse(lambda task: "the table is full" if task.regions else None)
            assert statuses(await begin(d, *specs(2))) == [502, 502]
            w.refuse(lambda _: None)
            assert answers[0].record
            assert statuses(await d.end("subscription", [answers[0].record.id], wait=TIMEOUT)) == [
                200
            ]
            assert active(d) == 2
            w.hold()
            assert statuses(await d.begin("subscription", specs(1), wait=0)) == [202]
            assert active(d) == 2
        async with w.dispatcher() as d:  # it reads what is stored
            assert active(d) == 2


async def test_several_dispatchers_keep_to_the_quota_together(etcd_server: TestEtcd) -> None:
    quotas = Quotas(host_records=10)
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(quotas=quotas) as one,
        w.dispatcher(quotas=quotas) as other,
    ):

        async def both_known() -> bool:
            return len(one.health().dispatchers) == len(other.health().dispatchers) == 2

        await until(both_known)
        for d in (one, other):
            assert statuses(await begin(d, *specs(8))) == [201] * 5 + [429] * 3
        assert len((await w.etcd.range("records/")).items) == 10


def test_one_dispatcher_knows_exactly_and_several_assume_the_worst() -> None:
    tally = Tally(100, 1000)
    tally.made, tally.removed = 10, 4
    assert tally.used(1)[0] == 106
    assert tally.used(3)[0] == 118
    tally.removed = 30
    assert tally.used(3)[0] == tally.used(1)[0] == 80  # others may have removed none


async def test_filters_and_records_have_a_limit_of_bytes(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(max_filter=10_000, max_record=10_000) as d,
    ):
        too_large = {"volume": {"in": list(range(5_000, 9_000))}}
        [answer] = await begin(d, RecordSpec("h1", "stocks", too_large))
        assert (answer.status, problem(answer).type) == (413, "too-large")
        [answer] = await begin(d, RecordSpec("h1", "stocks", BIG))
        assert answer.status == 201
        assert answer.record
        updated = await d.update("subscription", answer.record.id, BIG, wait=TIMEOUT)
        assert updated.status == 413  # while it is changed, it has both filters
        assert "limits.record" in problem(updated).detail
        [ended] = await d.end("subscription", [answer.record.id], wait=TIMEOUT)
        assert ended.status == 200
        with pytest.raises(TooLarge):
            await d.explain("stocks", too_large)


async def test_pages_have_a_limit_of_bytes(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(max_page=3 * weight(BIG)) as d:
        wanted = [RecordSpec("h1", "stocks", BIG if n % 3 else {}) for n in range(12)]
        wanted += specs(3, "h2")
        answers = await begin(d, *wanted)
        made = {answer.record.id for answer in answers if answer.record}
        for host, limit in ((None, 100), (None, 2), ("h1", 100), ("h2", 100)):
            seen: list[str] = []
            pages = 0
            after: str | None = None
            while True:
                page = await d.records("subscription", host=host, limit=limit, after=after)
                assert 1 <= len(page.items) <= limit
                assert sum(weight(item.filter) for item in page.items) <= 3 * weight(BIG)
                seen += [item.id for item in page.items]
                pages += 1
                after = page.next
                if after is None:
                    break
            assert len(seen) == len(set(seen)) == {None: 15, "h1": 12, "h2": 3}[host]
            assert set(seen) <= made
            assert pages > 2 or host == "h2"
        tiny = await d.records("subscription", limit=1)
        assert len(tiny.items) == 1


async def test_a_schema_changes_under_records_that_are_larger_than_new_ones_may_be(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w:
        async with w.dispatcher() as d:
            assert statuses(await begin(d, RecordSpec("h1", "stocks", BIG))) == [201]
        async with w.dispatcher(max_filter=1_024, max_record=4_096, grace=0.0) as d:
            changed = {"attributes": [*SCHEMA["attributes"], {"name": "more", "type": "bool"}]}
            assert (await d.put_space("stocks", changed)).version == 1
            [item] = (await d.records("subscription")).items
            assert (item.state, item.filter) == ("active", BIG)
            ended = await d.end("subscription", [item.id], wait=TIMEOUT)
            assert statuses(ended) == [200]


class CompactedEtcd(Etcd):
    """Loses its history between two pages, as often as a test says."""

    def __init__(self, pages: Sequence[Sequence[Stored]], times: int) -> None:
        super().__init__(Access(("127.0.0.1:1",)))
        self._pages = pages
        self.times = times
        self.reads = 0

    async def range(
        self,
        prefix: str,  # noqa: ARG002
        after: str | None = None,
        limit: int = 0,  # noqa: ARG002
        revision: int = 0,  # noqa: ARG002
        *,
        values: bool = True,  # noqa: ARG002
    ) -> KeyPage:
        self.reads += 1
        if after is None:
            return KeyPage(list(self._pages[0]), 7, bool(self._pages[0]))
        if self.times:
            self.times -= 1
            raise Compacted("it is gone")
        return KeyPage(list(self._pages[1]), 7, False)


def stored(n: int, host: str = "h1") -> Stored:
    record = Record(f"s1-{n:016x}", "subscription", host, "stocks", {}, {}, "active", 1, 1.0)
    return Stored(record_key(record.id), encode(record), 1, 1, 0)


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_a_count_begins_again_if_etcd_is_compacted_meanwhile(times: int) -> None:
    etcd = CompactedEtcd([[stored(1), stored(2)], [stored(3)]], times)
    usage = Usage(etcd, Siblings(etcd, "d1"), Quotas(host_records=4), Clock())
    await usage.start()
    usage.reserve(RecordSpec("h1", "stocks", {}))
    with pytest.raises(QuotaReached):
        usage.reserve(RecordSpec("h1", "stocks", {}))


async def test_a_dispatcher_starts_while_etcd_is_compacted_all_the_time() -> None:
    etcd = CompactedEtcd([[stored(1), stored(2)], [stored(3)]], 100)
    usage = Usage(etcd, Siblings(etcd, "d1"), Quotas(host_records=3), Clock())
    await usage.start()
    etcd.times = 0
    counting = asyncio.create_task(usage.run())

    async def is_counted() -> bool:
        try:
            usage.check(RecordSpec("h1", "stocks", {}))
        except QuotaReached:
            return True
        return False

    await until(is_counted)
    counting.cancel()


async def test_invented_spaces_are_not_counted(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: set[str] = set()

    def listen(change: str) -> None:
        original = getattr(Usage, change)

        def changed(usage: Usage, record: RecordSpec, *given: Any) -> None:
            counted.add(record.space)
            original(usage, record, *given)

        monkeypatch.setattr(Usage, change, changed)

    for change in ("reserve", "add", "remove", "change"):
        listen(change)
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        invented = (RecordSpec("h1", f"space-{n}", {}) for n in range(20))
        answers = await begin(d, *invented, *specs(1))
        assert statuses(answers) == [*[404] * 20, 201]
    assert counted == {"stocks"}


async def test_pages_of_publishers_have_a_limit_of_bytes(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(max_page=3 * weight(BIG)) as d:
        await d.delete_space("stocks")
        await d.put_space("tagged", {**SCHEMA, "authentication": "tagged"})
        made = [RecordSpec("h2", "tagged", BIG) for _ in range(7)]
        assert statuses(await d.begin("advertisement", made, wait=TIMEOUT)) == [201] * 7
        [mine] = await begin(d, RecordSpec("h1", "tagged", {}))
        assert mine.record
        found = 0
        after: str | None = None
        while True:
            page = await d.event_keys.publishers(mine.record.id, limit=100, after=after)
            assert 1 <= len(page.items) <= 3
            found += len(page.items)
            after = page.next
            if after is None:
                break
        assert found == 7


class Scene:
    """A dispatcher that counts records, beside others, under a clock that a test sets."""

    def __init__(self, records: Sequence[Stored], quotas: Quotas) -> None:
        self.now = 1000.0
        self.etcd = CompactedEtcd([records, []], 0)
        self.siblings = Siblings(self.etcd, "d1")
        self.usage = Usage(self.etcd, self.siblings, quotas, Clock(monotonic=lambda: self.now))

    def join(self, id: str) -> None:
        self.siblings.alive.add(id)
        self.siblings.joined.emit(id)

    def leave(self, id: str) -> None:
        self.siblings.alive.remove(id)
        self.siblings.gone.emit(id)

    async def counts(self) -> bool:
        """Whether the dispatcher counts the records when its task gets a turn."""
        before = self.etcd.reads
        counting = asyncio.create_task(self.usage.run())
        await asyncio.sleep(0)
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        return self.etcd.reads > before

    def has_room(self, record: RecordSpec) -> bool:
        try:
            self.usage.check(record)
        except QuotaReached:
            return False
        return True

    def make(self, count: int, host: str = "h1") -> None:
        for _ in range(count):
            self.usage.reserve(RecordSpec(host, "stocks", {}))


async def test_what_a_dispatcher_made_alone_does_not_count_twice_when_another_joins() -> None:
    scene = Scene([], Quotas(space_records=100))
    await scene.usage.start()
    scene.make(60)
    scene.join("d2")
    scene.make(1, "h2")
    assert await scene.counts()
    assert not await scene.counts()
    scene.leave("d2")
    assert await scene.counts()


async def test_a_join_during_a_count_spoils_no_tally() -> None:
    scene = Scene([stored(n) for n in range(60)], Quotas(space_records=61))
    scene.make(60)
    joined = False

    async def join_meanwhile(*_: object) -> KeyPage:
        nonlocal joined
        if not joined:
            joined = True
            scene.join("d2")
        return KeyPage([], 7, False)

    pages = scene.etcd.range

    async def read(prefix: str, after: str | None = None, **options: Any) -> KeyPage:
        return await (join_meanwhile() if after else pages(prefix, after, **options))

    scene.etcd.range = read  # type: ignore[assignment]
    await scene.usage.count()
    assert scene.usage.records() == 60
    assert scene.has_room(RecordSpec("h2", "stocks", {}))


async def test_what_ends_makes_room_beside_others() -> None:
    scene = Scene([], Quotas(host_records=10))
    scene.join("d2")
    await scene.usage.start()
    for _ in range(50):
        scene.make(1)
        scene.usage.remove(RecordSpec("h1", "stocks", {}))
    scene.make(5)
    with pytest.raises(QuotaReached):
        scene.make(1)


@pytest.mark.parametrize(("lacking", "has_room"), [(0, True), (1, False)])
async def test_an_update_counts_only_the_bytes_that_it_adds(lacking: int, has_room: bool) -> None:
    # The other dispatcher may have made as many records as this one: two, and one more here.
    scene = Scene([], Quotas(host_records=3, host_bytes=3 * weight({}) - lacking))
    scene.join("d2")
    await scene.usage.start()
    small, big = RecordSpec("h1", "stocks", {}), RecordSpec("h1", "stocks", BIG)
    scene.make(1)
    for _ in range(500):
        scene.usage.change(small, BIG)
        scene.usage.change(big, BIG)
        scene.usage.change(big, {})
    assert scene.has_room(small) == has_room


async def test_records_are_counted_before_an_assumption_refuses_for_long() -> None:
    scene = Scene([], Quotas(host_records=10))
    scene.join("d2")
    await scene.usage.start()
    scene.make(5)
    with pytest.raises(QuotaReached) as refused:
        scene.make(1)
    assert refused.value.retry_after < 5.0
    assert not await scene.counts()
    scene.now += 6.0
    with pytest.raises(QuotaReached):
        scene.make(1)
    assert await scene.counts()


async def test_records_are_counted_now_and_then_while_they_are_made_beside_others() -> None:
    scene = Scene([], Quotas())
    scene.join("d2")
    await scene.usage.start()
    scene.make(10)
    scene.now += 19.0
    scene.make(10)
    assert not await scene.counts()
    scene.now += 2.0
    scene.make(1)
    assert await scene.counts()
    scene.leave("d2")
    await scene.usage.start()
    scene.now += 1_000.0
    scene.make(1)
    assert not await scene.counts()  # it knows all itself


async def test_a_call_beyond_the_quota_does_not_use_up_its_key(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(quotas=Quotas(host_records=2)) as d,
    ):
        first = await begin(d, *specs(2))
        more = [RecordSpec("h1", "stocks", {"price": 900 + n}) for n in range(2)]
        refused = await d.begin("subscription", more, wait=TIMEOUT, key="a-key")
        assert statuses(refused) == [429, 429]
        assert problem(refused[0]).type == "quota"
        assert (await w.etcd.range("keys/")).items == []
        ids = [answer.record.id for answer in first if answer.record]
        assert statuses(await d.end("subscription", ids, wait=TIMEOUT)) == [200, 200]
        assert statuses(await d.begin("subscription", more, wait=TIMEOUT, key="a-key")) == [201] * 2
