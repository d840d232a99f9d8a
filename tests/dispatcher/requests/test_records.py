"""Subscriptions and advertisements: begun, ended, updated, each durable before it is answered."""

import asyncio

from configurators.streams.messages import Task
from configurators.streams.task_numbers import Phase
from dispatcher.calls import RecordSpec
from tests.dispatcher.support import TIMEOUT, phase_of, problem, specs, views, world
from tests.etcd import TestEtcd
from tests.support import until


async def test_a_subscription_becomes_active_in_its_partitions_and_goes_again(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        answers = await d.begin("subscription", specs(150), wait=TIMEOUT)
        assert {answer.status for answer in answers} == {201}
        records = views(answers)
        assert {record.state for record in records} == {"active"}
        assert w.installed() == await w.expected()
        assert sum(len(held) for held in w.installed().values()) >= 150
        for record in records:
            assert await d.record(record.id) == record
            assert record.timing
            t = record.timing
            stages = t.indexed_ms + t.journaled_ms + t.queued_ms + t.decided_ms + t.pushed_ms
            assert stages + t.committed_ms == t.total_ms
            assert record.partitions
            assert record.regions
            assert record.flow_ops == 3 * len(record.partitions)
        ended = await d.end("subscription", [r.id for r in records], wait=TIMEOUT)
        assert {answer.status for answer in ended} == {200}
        assert {record.state for record in views(ended)} == {"removed"}
        assert w.installed() == {}
        page = await d.records("subscription", state="removed", limit=1000)
        assert {record.id for record in page.items} == {record.id for record in records}
        assert (await d.records("subscription")).items == []


async def test_an_advertisement_is_told_to_all_who_may_hold_something_of_it(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [answer] = await d.begin("advertisement", [RecordSpec("h2", "stocks", {})], wait=TIMEOUT)
        [record] = views([answer])
        assert len(record.partitions) == len(w.installed()) > 1
        assert sum(bool(edge) for held in w.installed().values() for _, edge in held.values()) == 1


async def test_without_waiting_the_answer_comes_when_it_is_durable(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        w.hold()
        answers = await d.begin("subscription", specs(3), wait=0)
        assert [answer.status for answer in answers] == [202] * 3
        [first, *_] = views(answers)
        assert (await d.record(first.id)).state == "pending"
        await w.release()

        async def active() -> bool:
            return (await d.record(first.id)).state == "active"

        await until(active)


async def test_bad_elements_are_refused_one_by_one(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        answers = await d.begin(
            "subscription",
            [
                RecordSpec("h1", "stocks", {"price": {"gte": 1}}),
                RecordSpec("nobody", "stocks", {}),
                RecordSpec("h1", "nothing", {}),
                RecordSpec("h1", "stocks", {"colour": 1}),
                RecordSpec("h1", "stocks", {"price": {"gte": 10**40}}),
                RecordSpec("h1", "stocks", "price > "),
            ],
            wait=TIMEOUT,
        )
        assert [answer.status for answer in answers] == [201, 404, 404, 422, 422, 422]
        assert problem(answers[3]).field == "colour"
        assert len((await w.etcd.range("records/")).items) == 1


async def test_a_pending_subscription_can_be_removed(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        w.hold()
        begun = asyncio.create_task(d.begin("subscription", specs(1), wait=TIMEOUT))

        async def received() -> bool:
            return bool(w.received())

        await until(received)
        [pending] = (await d.records("subscription")).items
        ended = asyncio.create_task(d.end("subscription", [pending.id], wait=TIMEOUT))

        async def removing() -> bool:
            return (await d.record(pending.id)).state == "removing"

        await until(removing)
        await w.release()
        assert [answer.status for answer in await ended] == [200]
        assert [answer.status for answer in await begun] == [409]
        assert w.installed() == {}


async def test_what_switches_refuse_fails_and_is_withdrawn_everywhere(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        doomed = {"price": {"gte": 500, "lt": 505}}

        def refuse(task: Task) -> str | None:
            return "table full" if task.host == "h3" and task.regions else None

        w.refuse(refuse)
        mixed = [*specs(5), RecordSpec("h3", "stocks", doomed), *specs(5, "h2")]
        answers = await d.begin("subscription", mixed, wait=TIMEOUT)
        assert [answer.status for answer in answers] == [201] * 5 + [502] + [201] * 5
        failed = answers[5]
        assert failed.record
        assert failed.record.state == "failed"
        assert "table full" in problem(failed).detail
        assert (await d.record(failed.record.id)).reason == "table full"
        assert w.installed() == await w.expected()


async def test_an_update_grows_before_it_shrinks(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [record] = views(await d.begin("subscription", specs(1), wait=TIMEOUT))
        for configurator in w.configurators:
            configurator.received.clear()
        wider = {"price": {"gte": 0, "lt": 700}, "symbol": {"eq": "XYZ"}}
        answer = await d.update("subscription", record.id, wider, wait=TIMEOUT)
        assert answer.status == 200
        assert answer.record
        assert answer.record.filter == wider
        assert answer.record == await d.record(record.id)
        assert w.installed() == await w.expected()
        phases = {phase_of(task) for _, task in w.received()}
        assert phases == {Phase.GROW, Phase.SHRINK}


async def test_a_refused_update_leaves_the_old_filter(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [record] = views(await d.begin("subscription", specs(1), wait=TIMEOUT))
        before = w.installed()

        def refuse(task: Task) -> str | None:
            return "table full" if phase_of(task) < Phase.BACK else None

        w.refuse(refuse)
        answer = await d.update("subscription", record.id, {}, wait=TIMEOUT)
        assert answer.status == 502
        now = await d.record(record.id)
        assert (now.state, now.filter, now.reason) == ("active", record.filter, "table full")
        assert w.installed() == before


async def test_unknown_ids_and_ids_of_the_other_kind_are_not_found(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        [record] = views(await d.begin("subscription", specs(1), wait=TIMEOUT))
        wrong = ["", "x", "s1-0", "s1-" + "0" * 16, "s/../x", record.id]
        answers = await d.end("advertisement", wrong, wait=TIMEOUT)
        assert {answer.status for answer in answers} == {404}
        assert (await d.record(record.id)).state == "active"


async def test_lists_come_in_pages_and_by_host(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        everyone = [*specs(7, "h1"), *specs(6, "h2")]
        made = {
            record.id for record in views(await d.begin("subscription", everyone, wait=TIMEOUT))
        }
        found: list[str] = []
        after = None
        while True:
            page = await d.records("subscription", limit=4, after=after, space="stocks")
            found += [record.id for record in page.items]
            after = page.next
            if after is None:
                break
        assert sorted(found) == sorted(made)
        assert len((await d.records("subscription", host="h2")).items) == 6
        assert (await d.records("advertisement")).items == []
