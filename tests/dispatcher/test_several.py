"""Several dispatchers on one etcd: nothing is lost or doubled, whoever dies, whoever repeats."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from configurators.store.documents import decode_key_use, decode_record, encode
from configurators.store.keys import owner_key, record_key
from configurators.streams.task_numbers import Phase
from dispatcher.calls import RecordSpec
from dispatcher.errors import Conflict, Failed
from tests.dispatcher.support import SCHEMA, TIMEOUT, phase_of, specs, views, world
from tests.etcd import TestEtcd, running
from tests.support import until


async def test_what_one_begins_another_may_end(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        both = await asyncio.gather(
            *(d.begin("subscription", specs(60, "h1"), wait=TIMEOUT) for d in (d1, d2))
        )
        ids = [record.id for answers in both for record in views(answers)]
        assert len(set(ids)) == 120
        assert w.installed() == await w.expected()
        ended = await asyncio.gather(
            d1.end("subscription", ids[60:], wait=TIMEOUT),
            d2.end("subscription", ids[:60], wait=TIMEOUT),
        )
        assert {answer.status for answers in ended for answer in answers} == {200}
        assert w.installed() == {}


async def test_ending_a_pending_one_through_another_dispatcher(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        w.hold()
        begun = asyncio.create_task(d1.begin("subscription", specs(5), wait=TIMEOUT))

        async def five() -> bool:
            return len((await d2.records("subscription")).items) == 5

        await until(five)
        ids = [record.id for record in (await d2.records("subscription")).items]
        ended = asyncio.create_task(d2.end("subscription", ids, wait=TIMEOUT))

        async def removing() -> bool:
            found = (await d1.records("subscription")).items
            return all(record.state == "removing" for record in found)

        await until(removing)
        await w.release()
        assert {answer.status for answer in await ended} == {200}
        assert {answer.status for answer in await begun} == {409}
        assert w.installed() == {}


async def test_both_end_the_same_and_both_are_told_it_is_removed(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        ids = [r.id for r in views(await d1.begin("subscription", specs(20), wait=TIMEOUT))]
        ended = await asyncio.gather(*(d.end("subscription", ids, wait=TIMEOUT) for d in (d1, d2)))
        statuses = [answer.status for answers in ended for answer in answers]
        # One of the two may come when all is over.
        assert set(statuses) <= {200, 404}
        assert statuses.count(200) >= 20
        assert w.installed() == {}


async def test_what_one_remembers_of_a_record_may_be_outdated(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        begun = views(await d1.begin("subscription", specs(3), wait=TIMEOUT))
        changed, ended, kept = [record.id for record in begun]
        await d2.update("subscription", changed, {"price": {"gte": 500}}, wait=TIMEOUT)
        await d2.end("subscription", [ended], wait=TIMEOUT)
        answers = await d1.end("subscription", [changed, ended, kept], wait=TIMEOUT)
        assert [answer.status for answer in answers] == [200, 404, 200]
        again = await d1.end("subscription", [changed, ended, kept], wait=TIMEOUT)
        assert [answer.status for answer in again] == [404, 404, 404]
        assert w.installed() == {}


@pytest.mark.parametrize("action", ["begin", "end", "update"])
async def test_what_a_dead_dispatcher_left_is_taken_over(
    etcd_server: TestEtcd, action: str
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(lease_ttl=2) as alive:
        known = views(await alive.begin("subscription", specs(3), wait=TIMEOUT))
        w.hold()
        async with w.dispatcher(lease_ttl=2) as dying:
            if action == "begin":
                answers = await dying.begin("subscription", specs(3, "h2"), wait=0)
            elif action == "end":
                answers = await dying.end("subscription", [r.id for r in known], wait=0)
            else:
                wider = {"price": {"gte": 0, "lt": 900}}
                answers = [await dying.update("subscription", known[0].id, wider, wait=0)]
            assert {answer.status for answer in answers} == {202}
        await w.release()

        async def over() -> bool:
            found = (await alive.records("subscription")).items
            return all(r.state == "active" and not r.updating for r in found)

        await until(over)
        left = (await alive.records("subscription")).items
        assert len(left) == {"begin": 6, "end": 0, "update": 3}[action]
        assert w.installed() == await w.expected()
        assert alive.metrics.adopted >= 1


@pytest.mark.parametrize("taken_back", [False, True])
async def test_an_update_that_another_took_over_is_told_as_it_ended(
    etcd_server: TestEtcd, taken_back: bool
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [known] = views(await d.begin("subscription", specs(1), wait=TIMEOUT))
        w.hold()
        wider = {"price": {"gte": 0, "lt": 900}}
        update = asyncio.create_task(d.update("subscription", known.id, wider, wait=TIMEOUT))

        async def under_way() -> bool:
            return (await d.record(known.id)).updating

        await until(under_way)
        stored = await w.etcd.get(record_key(known.id))
        assert stored
        record = decode_record(stored.value)
        assert record.next
        # As another dispatcher leaves it, which took this one for dead.
        ended = replace(record, seq=record.seq + 1, by="", next=None, reason="table full")
        if not taken_back:
            new = record.next
            ended = replace(ended, filter=new.filter, regions=new.regions, reason=None)
        await w.etcd.put(record_key(known.id), encode(ended))
        await w.release()
        answer = await update
        assert answer.status == (409 if taken_back else 200)
        assert answer.record
        assert answer.record.filter == (known.filter if taken_back else wider)


async def test_a_dispatcher_that_starts_takes_over_what_it_finds(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w:
        w.hold()
        async with w.dispatcher() as first:
            await first.begin("subscription", specs(150), wait=0)
        await w.release()
        async with w.dispatcher() as second:

            async def active() -> bool:
                found = (await second.records("subscription", limit=1000)).items
                return len(found) == 150 and {r.state for r in found} == {"active"}

            await until(active)
            assert w.installed() == await w.expected()


async def test_new_owners_are_told_what_old_ones_did_not_settle(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        w.hold()
        begun = asyncio.create_task(d.begin("subscription", specs(40), wait=TIMEOUT))

        async def told() -> bool:
            return len(w.received()) >= 40

        await until(told)
        third = await w.configurator("c3")
        for partition in {name for name, _ in w.received()}:
            await w.etcd.put(owner_key(partition), b"c3")
        await w.release()
        assert {answer.status for answer in await begun} == {201}
        assert third.installed() == await w.expected()


async def test_nobody_is_left_waiting_when_a_dispatcher_stops(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w:
        w.hold()
        async with w.dispatcher(window=5) as d:
            begun = asyncio.create_task(d.begin("subscription", specs(20), wait=600))

            async def five() -> bool:
                return len((await d.records("subscription")).items) == 5

            await until(five)
        async with asyncio.timeout(TIMEOUT):
            statuses = [answer.status for answer in await begun]
        assert statuses == [202] * 5 + [503] * 15


# Idempotency keys


async def test_a_repeated_call_answers_with_the_same_records(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        batch = [*specs(120), RecordSpec("nobody", "stocks", {})]
        first = await d1.begin("subscription", batch, wait=TIMEOUT, key="k", who="me")
        second = await d2.begin("subscription", batch, wait=TIMEOUT, key="k", who="me")
        assert [a.record and a.record.id for a in first] == [
            a.record and a.record.id for a in second
        ]
        assert [answer.status for answer in second] == [201] * 120 + [404]
        other = await d2.begin("subscription", batch, wait=TIMEOUT, key="k", who="you")
        assert {r.id for r in views(other[:-1])}.isdisjoint(r.id for r in views(first[:-1]))
        for another in (specs(1), [RecordSpec("nobody", "stocks", {})]):
            with pytest.raises(Conflict, match="another call") as caught:
                await d1.begin("subscription", another, wait=TIMEOUT, key="k", who="me")
        assert caught.value.kind == "key-reused"
        with pytest.raises(Conflict):
            await d1.begin("advertisement", batch, wait=TIMEOUT, key="k", who="me")


async def test_calls_with_one_key_at_the_same_time_make_one_set_of_records(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        calls = [
            d.begin("subscription", specs(30), wait=TIMEOUT, key="k", who="me")
            for d in (d1, d2, d1, d2)
        ]
        answers = await asyncio.gather(*calls)
        assert {answer.status for some in answers for answer in some} == {201}
        assert len({tuple(r.id for r in views(some)) for some in answers}) == 1
        assert len((await d1.records("subscription")).items) == 30


async def test_a_repeat_after_a_crash_makes_the_records_that_are_missing(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        first = views(await d.begin("subscription", specs(4), wait=TIMEOUT, key="k", who="me"))
        # As if the dispatcher had died before it wrote these.
        for record in first[2:]:
            await w.etcd.delete(f"records/1/{record.id}")
        second = views(await d.begin("subscription", specs(4), wait=TIMEOUT, key="k", who="me"))
        assert [r.id for r in second] == [r.id for r in first]
        assert {r.state for r in second} == {"active"}
        assert len((await d.records("subscription")).items) == 4


async def test_a_repeated_end_is_answered_as_the_first(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        ids = [r.id for r in views(await d.begin("subscription", specs(2), wait=TIMEOUT))]
        for _ in range(2):
            ended = await d.end("subscription", ids, wait=TIMEOUT, key="k", who="me")
            assert [answer.status for answer in ended] == [200, 200]
            assert {r.state for r in views(ended)} == {"removed"}
        assert [a.status for a in await d.end("subscription", ids, wait=0)] == [404, 404]
        with pytest.raises(Conflict):
            await d.end("subscription", ids[:1], wait=TIMEOUT, key="k", who="me")


async def test_a_call_that_was_refused_as_a_whole_does_not_use_up_its_key(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        wrong = [RecordSpec("h1", "stocks", {"colour": 1})]
        [answer] = await d.begin("subscription", wrong, wait=TIMEOUT, key="k", who="me")
        assert answer.status == 422
        [answer] = await d.begin("subscription", specs(1), wait=TIMEOUT, key="k", who="me")
        assert answer.status == 201


async def test_a_repeated_call_tells_of_records_that_ended_meanwhile(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        first = views(await d.begin("subscription", specs(2), wait=TIMEOUT, key="k", who="me"))
        await d.end("subscription", [record.id for record in first], wait=TIMEOUT)
        await d.delete_space("stocks")
        again = await d.begin("subscription", specs(2), wait=TIMEOUT, key="k", who="me")
        assert [answer.status for answer in again] == [200, 200]
        assert [(r.id, r.state) for r in views(again)] == [(r.id, "removed") for r in first]
        assert (await w.etcd.range("records/")).items == []


async def test_a_call_that_is_repeated_when_its_record_is_forgotten_begins_nothing(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [first] = views(await d.begin("subscription", specs(1), wait=TIMEOUT, key="k", who="me"))
        await d.end("subscription", [first.id], wait=TIMEOUT)
        # As it is after some hours: finished records are gone, keys are not.
        await w.etcd.delete("finished/", prefix=True)
        [key] = (await w.etcd.range("keys/")).items
        use = decode_key_use(key.value)
        await w.etcd.put(key.key, encode(replace(use, made=use.made - 2 * 3600)))
        [again] = await d.begin("subscription", specs(1), wait=TIMEOUT, key="k", who="me")
        assert again.status == 409
        assert (await w.etcd.range("records/")).items == []


# The store and schemas


async def test_an_etcd_that_comes_back_finds_everything_going_on(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with world(server.access("test/", 5.0)) as w, w.dispatcher() as d:
            first = asyncio.create_task(d.begin("subscription", specs(50), wait=TIMEOUT * 2))
            await asyncio.sleep(0)
            await asyncio.to_thread(server.stop)
            second = asyncio.create_task(d.begin("subscription", specs(50, "h2"), wait=TIMEOUT))
            await asyncio.to_thread(server.start)
            assert {answer.status for answer in await first} == {201}
            assert {answer.status for answer in await second} == {201}
            assert len((await d.records("subscription", limit=1000)).items) == 100
            assert w.installed() == await w.expected()


async def test_a_change_of_schema_goes_on_when_its_dispatcher_dies(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(lease_ttl=2, grace=0.1) as alive,
    ):
        views(await alive.begin("subscription", specs(20), wait=TIMEOUT))
        wider = {"attributes": [*SCHEMA["attributes"], {"name": "hot", "type": "bool"}]}
        async with w.dispatcher(lease_ttl=2, grace=600) as dying:
            assert (await dying.put_space("stocks", wider)).version == 1
        await until(lambda: 1 in alive.status.space("stocks").versions)

        async def over() -> bool:
            space = alive.status.space("stocks")
            return space.versions == [1] and not space.changing

        await until(over)
        for item in (await w.etcd.range("records/")).items:
            assert list(decode_record(item.value).regions) == [1]
        version_1 = {name: held for name, held in w.installed().items() if name.startswith("1.1/")}
        assert version_1 == await w.expected()


async def test_a_new_version_that_switches_refuse_is_taken_back(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        views(await d.begin("subscription", specs(5), wait=TIMEOUT))
        before = w.installed()
        new = [f"1.1/{name.partition('/')[2]}" for name in before]
        assert new
        w.refuse(lambda task: "full" if phase_of(task) is Phase.GROW else None)
        wider = {"attributes": [*SCHEMA["attributes"], {"name": "hot", "type": "bool"}]}
        with pytest.raises(Failed, match="full"):
            await d.put_space("stocks", wider)

        async def over() -> bool:
            space = d.status.space("stocks")
            return space.versions == [0] and not space.changing

        await until(over)
        assert w.installed() == before
        assert {r.state for r in (await d.records("subscription")).items} == {"active"}
