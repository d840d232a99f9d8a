"""With real configurators and emulated switches: what is answered is what the switches hold."""

import asyncio
from contextlib import aclosing
from random import Random

import pytest

from dispatcher.calls import RecordSpec
from dispatcher.changes.damping import Patience
from dispatcher.errors import Conflict, NotFound, Problem
from dispatcher.views import ChangeType, RecordView, SpaceGone, SpaceView
from dzflow.errors import BadInput
from sdn.emulator.model import SwitchModel
from sdn.network.topology import Host
from sdn.tables.pipeline import PlanName
from tests.dispatcher.support import SCHEMA, TIMEOUT, random_filter, views
from tests.dispatcher.whole import Mode, whole
from tests.etcd import TestEtcd
from tests.support import until

MODES: tuple[Mode, ...] = ("sna", "sea")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plan", ["legs", "lpm"])
async def test_switches_hold_what_the_records_say(
    etcd_server: TestEtcd, plan: PlanName, mode: Mode
) -> None:
    rng = Random(1)
    async with whole(etcd_server.access(), plan=plan, mode=mode) as w, w.dispatcher() as d:
        space = await d.put_space("stocks", SCHEMA)
        assert space == d.status.space("stocks")
        assert (await d.put_space("stocks", SCHEMA)).number == space.number
        offers = [RecordSpec(host, "stocks", {}) for host in ("h1", "h2")]
        views(await d.begin("advertisement", offers, wait=TIMEOUT))
        wants = [
            RecordSpec(f"h{rng.randint(1, 3)}", "stocks", random_filter(rng)) for _ in range(60)
        ]
        records = views(await d.begin("subscription", wants, wait=TIMEOUT))
        assert await w.check_flows(d) > 60
        ends = [record.id for record in records[::2]]
        views(await d.end("subscription", ends, wait=TIMEOUT))
        for record in records[1::4]:
            answer = await d.update("subscription", record.id, random_filter(rng), wait=TIMEOUT)
            assert answer.status == 200, answer.problem
        await w.check_flows(d)
        with pytest.raises(Conflict):
            await d.delete_space("stocks")
        # In mode sea, a lock may be on its way to another configurator.
        await until(lambda: {part.state for part in d.status.partitions()} == {"ready"})
        parts = d.status.partitions()
        owners = {part.configurator for part in parts}
        assert owners == {"c1", "c2"} if mode == "sna" else owners <= {"c1", "c2"}
        alive = d.status.configurators()
        assert sum(view.partitions for view in alive) == len(parts)
        assert {(view.id, view.state) for view in alive} == {("c1", "up"), ("c2", "up")}


@pytest.mark.parametrize("mode", MODES)
async def test_of_a_batch_that_fills_a_table_only_what_does_not_fit_fails(
    etcd_server: TestEtcd, mode: Mode
) -> None:
    model = SwitchModel(table_capacity=60)
    async with (
        whole(etcd_server.access(), "line:2", model=model, mode=mode) as w,
        w.dispatcher(partitions=1) as d,
    ):
        await d.put_space("stocks", SCHEMA)
        views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
        wants = [RecordSpec("h2", "stocks", {"volume": {"eq": 997 * n}}) for n in range(100)]
        answers = await d.begin("subscription", wants, wait=TIMEOUT)
        assert {answer.status for answer in answers} == {201, 502}
        failed = [answer for answer in answers if answer.status == 502]
        assert all(isinstance(answer.problem, Problem) for answer in failed)
        assert len((await d.records("subscription", limit=1000)).items) == 100 - len(failed)
        gone = await d.records("subscription", state="failed", limit=1000)
        assert {r.id for r in gone.items} == {a.record.id for a in failed if a.record}
        assert await w.check_flows(d) >= 60


@pytest.mark.parametrize("mode", MODES)
async def test_a_schema_is_changed_under_live_records(etcd_server: TestEtcd, mode: Mode) -> None:
    rng = Random(2)
    async with (
        whole(etcd_server.access(), mode=mode) as w,
        w.dispatcher(grace=0.2) as d,
        w.dispatcher() as other,
    ):
        await d.put_space("stocks", SCHEMA)
        views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
        wants = [RecordSpec("h3", "stocks", random_filter(rng)) for _ in range(30)]
        records = views(await d.begin("subscription", wants, wait=TIMEOUT))
        await until(lambda: other.status.spaces())
        narrower = {"attributes": [{"name": "volume", "type": "int", "min": 0, "max": 9}]}
        with pytest.raises(Conflict, match="do not fit") as caught:
            await d.put_space("stocks", narrower)
        assert set(caught.value.ids) <= {record.id for record in records}
        assert caught.value.ids

        async def churn() -> None:
            for _ in range(6):
                ask = RecordSpec("h2", "stocks", random_filter(rng))
                [made] = views(await other.begin("subscription", [ask], wait=TIMEOUT))
                assert made.state == "active"

        wider = {"attributes": [*SCHEMA["attributes"], {"name": "hot", "type": "bool"}]}
        _, changed = await asyncio.gather(churn(), d.put_space("stocks", wider))
        assert changed.version == 1
        assert changed.schema["attributes"][-1]["name"] == "hot"

        async def over() -> bool:
            return (
                d.status.space("stocks").versions == [1] and not d.status.space("stocks").changing
            )

        await until(over)
        assert len((await d.records("subscription", limit=1000)).items) == 36

        async def whole_again() -> bool:
            try:
                await w.check_flows(d)
            except AssertionError:
                return False
            return True

        await until(whole_again)
        await until(lambda: other.status.space("stocks").versions == [1])
        hot = RecordSpec("h2", "stocks", "hot == true")
        views(await other.begin("subscription", [hot], wait=TIMEOUT))


@pytest.mark.parametrize("mode", MODES)
async def test_hosts_come_and_go(etcd_server: TestEtcd, mode: Mode) -> None:
    async with whole(etcd_server.access(), mode=mode) as w, w.dispatcher() as d:
        await d.put_space("stocks", SCHEMA)
        made = await d.hosts.put(Host("h9", "s1", 9))
        assert made in d.hosts.views()
        views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
        [record] = views(
            await d.begin("subscription", [RecordSpec("h9", "stocks", {})], wait=TIMEOUT)
        )
        with pytest.raises(Conflict) as caught:
            await d.hosts.delete("h9")
        assert caught.value.ids == (record.id,)
        await d.hosts.put(Host("h9", "s3", 9))
        await w.check_flows(d)
        views(await d.end("subscription", [record.id], wait=TIMEOUT))
        await d.hosts.delete("h9")
        assert "h9" not in {host.id for host in d.hosts.views()}
        with pytest.raises(NotFound):
            await d.hosts.delete("h9")
        with pytest.raises(BadInput):
            await d.hosts.put(Host("h10", "nowhere", 1))


async def test_explaining_tells_what_subscribing_would_do(etcd_server: TestEtcd) -> None:
    async with whole(etcd_server.access()) as w, w.dispatcher() as d:
        await d.put_space("stocks", SCHEMA)
        views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
        filter_ = 'price >= 420 and symbol == "ACME"'
        found = await d.explain("stocks", filter_, "h3")
        assert len(found.cells) == len(found.regions) >= 1
        assert found.false_share is not None
        assert 0 <= found.false_share < 1
        assert found.note is None
        assert all("symbol" in cell or "price" in cell for cell in found.cells)
        assert {flow.switch for flow in found.flows} == {"s1", "s2", "s3"}
        [record] = views(
            await d.begin("subscription", [RecordSpec("h3", "stocks", filter_)], wait=TIMEOUT)
        )
        assert record.flow_ops == len(found.flows)
        assert record.regions == found.regions
        assert record.partitions == found.partitions
        without = await d.explain("stocks", filter_)
        assert without.flows == []
        assert without.note
        assert "name a host" in without.note


async def test_the_stream_tells_of_spaces_records_and_broken_trees(etcd_server: TestEtcd) -> None:
    async with (
        whole(etcd_server.access(), "ring:4", trees=2) as w,
        w.dispatcher() as d,
        asyncio.timeout(TIMEOUT),
    ):
        types: tuple[ChangeType, ...] = (
            "record", "space", "network", "switch", "configurator"
        )  # fmt: skip
        async with aclosing(d.changes(types)) as changes:
            seen = {(await anext(changes)).type for _ in range(1 + 4 + 2)}
            assert seen == {"network", "switch", "configurator"}
            await d.put_space("stocks", SCHEMA)
            async for change in changes:
                if isinstance(change.data, SpaceView):
                    assert change.data.name == "stocks"
                    assert change.data.trees == [0, 1]
                    break
            ask = RecordSpec("h1", "stocks", {})
            begun = asyncio.create_task(d.begin("subscription", [ask], wait=TIMEOUT))
            states = []
            async for change in changes:
                if isinstance(change.data, RecordView):
                    states.append(change.data.state)
                    if change.data.state == "active":
                        break
            assert states == ["pending", "active"]
            views(await begun)
            trees = {tree.number: tree for tree in d.status.topology().trees}
            only = set(trees[0].links) - set(trees[1].links)
            link = next(
                link
                for link in w.network.topology.links
                if any((link.a, link.a_port) == (one.a, one.a_port) for one in only)
            )
            w.network.set_link(link, False)
            async for change in changes:
                if isinstance(change.data, SpaceView) and change.data.trees == [1]:
                    break
            assert [tree.whole for tree in d.status.topology().trees] == [False, True]
            w.network.set_link(link, True)
            async for change in changes:
                if isinstance(change.data, SpaceView) and len(change.data.trees) == 2:
                    break  # the other one may have been replaced
            [record] = (await d.records("subscription")).items
            await d.end("subscription", [record.id], wait=TIMEOUT)
            await d.delete_space("stocks")
            async for change in changes:
                if isinstance(change.data, SpaceGone):
                    break


async def test_a_backup_comes_back_under_the_same_ids(etcd_server: TestEtcd) -> None:
    rng = Random(3)
    async with whole(etcd_server.access()) as w, w.dispatcher() as d:
        await d.put_space("other", SCHEMA)
        await d.put_space("stocks", SCHEMA)
        await d.hosts.put(Host("h9", "s2", 9))
        asks = [RecordSpec("h9", "stocks", random_filter(rng), f"label {n}") for n in range(20)]
        offers = [RecordSpec("h1", "stocks", {}), RecordSpec("h2", "other", {}, ttl=600)]
        before = views(await d.begin("advertisement", offers, wait=TIMEOUT))
        before += views(await d.begin("subscription", asks, wait=TIMEOUT))
        entries = await w.check_flows(d)
        saved = await d.backup()
        with pytest.raises(Conflict):
            await d.restore(saved)
        with pytest.raises(BadInput):
            await d.restore(b"{}")
    async with whole(etcd_server.access()) as w, w.dispatcher() as d:
        restored = await d.restore(saved)
        assert (restored.spaces, restored.records, restored.failed) == (2, 22, 0)
        for record in before:
            now = await d.record(record.id)
            assert (now.filter, now.regions, now.partitions) == (
                record.filter,
                record.regions,
                record.partitions,
            )
            assert (now.state, now.created, now.label) == (
                "active",
                record.created,
                record.label,
            )
        assert await w.check_flows(d) == entries


async def test_what_waits_for_a_switch_says_so_everywhere_and_goes_on(
    etcd_server: TestEtcd,
) -> None:
    patient = Patience(down_after=3600.0)  # the switch is away, but not lost
    async with (
        whole(etcd_server.access()) as w,
        w.dispatcher(patience=patient) as d,
        w.dispatcher(patience=patient) as other,
    ):
        await d.put_space("stocks", SCHEMA)
        views(await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT))
        w.network.agents["s3"].drop()

        async def down() -> bool:
            return any(switch.state == "down" for switch in d.status.switches())

        await until(down)
        far = RecordSpec("h3", "stocks", {"price": {"gte": 500}})
        [waits] = await d.begin("subscription", [far], wait=0)
        assert waits.status == 202
        assert waits.record
        waiting = waits.record.id

        async def told() -> bool:
            return "s3" in ((await other.record(waiting)).reason or "")

        await until(told)
        assert (await d.record(waiting)).state == "pending"
        w.network.agents["s3"].come_back()

        async def active() -> bool:
            return (await other.record(waiting)).state == "active"

        await until(active)
        assert (await other.record(waiting)).reason is None
        await w.check_flows(d)
