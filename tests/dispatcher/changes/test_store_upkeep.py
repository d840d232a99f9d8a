"""etcd's database stays below its quota, and the service survives when it does not."""

import asyncio
import logging
from math import inf
from pathlib import Path

import pytest

from configurators.environment import Clock
from configurators.store.etcd.client import Compacted, Etcd, StoreFull, StoreUnavailable
from configurators.store.keys import FINISHED, REMOVED_UNTIL
from configurators.store.upkeep import read_room
from dispatcher.changes.retention import Retention
from dispatcher.changes.store_upkeep import StoreUpkeep
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Unavailable
from dispatcher.knowledge.siblings import Siblings
from dispatcher.metrics import Metrics
from dispatcher.options import DispatcherOptions
from dispatcher.requests.calls.idempotency import removed_until
from tests.dispatcher.changes.test_retention import Time
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd, running
from tests.support import until

MIB = 1 << 20
QUOTA = 24 * MIB
SMALL = [f"--quota-backend-bytes={QUOTA}"]


async def fill(etcd: Etcd, under: str, least: int = 0) -> None:
    """Put large values until etcd is full, or its database has so many bytes."""
    number = 0
    while not least or (await read_room(etcd)).size < least:
        try:
            await etcd.put(f"{under}x{number:04}", bytes(MIB))
        except StoreFull:
            return
        number += 1
        if least:
            await asyncio.sleep(0.15)  # etcd reports the size of what it has committed


def level(d: Dispatcher) -> str | None:
    store = d.health().store
    return store.level if store else None


def impairment(d: Dispatcher) -> str:
    """What operators are told of etcd."""
    return "".join(each.reason for each in d.health().impaired if each.id == "etcd")


async def test_a_full_etcd_is_made_usable_again_by_itself_and_only_finished_records_are_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, options=SMALL) as server:
        async with world(server.access()) as w, w.dispatcher(quota=QUOTA) as d:
            [lives] = views(await d.begin("subscription", specs(1), wait=TIMEOUT, key="k"))
            [ended] = views(await d.begin("subscription", specs(1), wait=TIMEOUT))
            await d.end("subscription", [ended.id], wait=TIMEOUT)
            await fill(w.etcd, FINISHED)

            async def works() -> bool:
                try:
                    [answer] = await d.begin("subscription", specs(1), wait=TIMEOUT)
                except Unavailable:
                    return False
                return answer.status == 201

            await until(works)
            assert level(d) in ("normal", "high")
            assert d.health().etcd.ok
            [again] = views(await d.begin("subscription", specs(1), wait=TIMEOUT, key="k"))
            assert again.id == lives.id
            # If removing history made enough room, finished records stay.
            enough = "removed to make room: history\n" in caplog.text
            assert enough or not (await w.etcd.range(FINISHED)).items
            assert w.installed() == await w.expected()
    assert "has reached its quota" in caplog.text
    assert "etcd accepts writes again" in caplog.text


async def test_a_dispatcher_that_starts_with_a_full_etcd_makes_room(tmp_path: Path) -> None:
    with running(tmp_path, options=SMALL) as server:
        async with world(server.access()) as w:
            await fill(w.etcd, FINISHED)
            async with asyncio.timeout(TIMEOUT), w.dispatcher(quota=QUOTA) as d:
                views(await d.begin("subscription", specs(1), wait=TIMEOUT))


async def test_what_cannot_be_removed_leaves_etcd_full_until_an_operator_makes_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, options=SMALL) as server:
        async with world(server.access()) as w, w.dispatcher(quota=8 * MIB) as d:
            await fill(w.etcd, "foreign/")
            await until(lambda: "no more room can be made" in caplog.text)
            assert level(d) == "full"
            health = d.health()
            assert not health.etcd.ok
            assert "etcd: etcd's database has reached its quota" in health.reasons[0]
            with pytest.raises(Unavailable, match="quota") as refused:
                await d.begin("subscription", specs(1), wait=TIMEOUT)
            assert refused.value.kind == "store-full"
            assert refused.value.status == 503

            await w.etcd.delete("foreign/", prefix=True)  # deletions are possible
            done = await d.compact_store()
            assert not done.full
            assert done.size < done.size_before
            views(await d.begin("subscription", specs(1), wait=TIMEOUT))
            assert d.health().etcd.ok


async def test_records_can_be_removed_when_new_ones_are_refused(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with world(server.access()) as w, w.dispatcher(quota=QUOTA) as d:
            [record] = views(await d.begin("subscription", specs(1), wait=TIMEOUT))
            await fill(w.etcd, "foreign/", least=QUOTA + 4 * MIB)
            await until(lambda: level(d) == "refusing")
            assert d.health().etcd.ok
            assert "requests that need room are refused" in impairment(d)
            with pytest.raises(Unavailable):
                await d.begin("subscription", specs(1), wait=TIMEOUT)
            with pytest.raises(Unavailable):
                await d.update("subscription", record.id, {}, wait=TIMEOUT)
            [gone] = views(await d.end("subscription", [record.id], wait=TIMEOUT))
            assert gone.state == "removed"


async def test_operators_are_warned_at_70_percent_of_the_quota(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as server:
        async with world(server.access()) as w, w.dispatcher(quota=QUOTA) as d:
            await until(lambda: level(d) == "normal")
            assert not impairment(d)
            await fill(w.etcd, "foreign/", least=int(0.72 * QUOTA))
            await until(lambda: level(d) == "high")
            assert d.health().etcd.ok
            assert "of the quota of 24 MiB" in impairment(d)
            views(await d.begin("subscription", specs(1), wait=TIMEOUT))
    warned = [each for each in caplog.records if "of the quota" in each.getMessage()]
    assert [each.levelno for each in warned] == [logging.WARNING]


async def test_requests_are_refused_until_it_is_known_again_which_records_were_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, options=SMALL) as server:
        async with Etcd(server.access()) as etcd:
            kept = upkeep(etcd, Siblings(etcd, "d1"), Time(), quota=QUOTA)
            await fill(etcd, FINISHED)
            with monkeypatch.context() as patch:
                patch.setattr(Retention, "announce", fail)
                with pytest.raises(StoreUnavailable):
                    await kept.attend()
                assert not (await read_room(etcd)).full
                with pytest.raises(Unavailable):
                    kept.refuse_if_full()
            await etcd.delete(REMOVED_UNTIL)
            await kept.attend()
            kept.refuse_if_full()
            assert await removed_until(etcd) < inf


async def fail(_: Retention, until: float = 0.0) -> None:
    raise StoreFull("etcd is full") if until else StoreUnavailable("etcd is away")


async def test_an_etcd_that_is_full_can_be_restarted(tmp_path: Path) -> None:
    with running(tmp_path, options=SMALL) as server:
        async with Etcd(server.access()) as etcd:
            await fill(etcd, "foreign/")
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        async with Etcd(server.access()) as etcd:
            assert (await read_room(etcd)).full


async def compacted(etcd: Etcd, revision: int) -> bool:
    try:
        await etcd.range("a", revision=revision)
    except Compacted:
        return True
    return False


def upkeep(
    etcd: Etcd, siblings: Siblings, time: Time, history: float = 60.0, quota: int = 2 << 30
) -> StoreUpkeep:
    clock = Clock(time, time)
    bounds = DispatcherOptions().bounds
    retention = Retention(etcd, siblings, [], bounds, Metrics(), clock)
    return StoreUpkeep(etcd, siblings, retention, quota, history, clock)


async def test_history_is_compacted_and_what_is_recent_stays(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            time = Time()
            kept = upkeep(etcd, Siblings(etcd, "d1"), time)
            first = await etcd.put("a", b"1")
            await etcd.put("a", b"2")
            await kept.attend()
            recent = await etcd.put("a", b"3")
            await etcd.put("a", b"4")
            time.now += 59
            await kept.attend()
            assert not await compacted(etcd, first)
            time.now += 31
            await kept.attend()
            assert await compacted(etcd, first)
            assert not await compacted(etcd, recent)


async def test_a_nearly_full_etcd_keeps_its_history_and_is_seldom_defragmented(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            time = Time()
            await fill(etcd, "foreign/", least=QUOTA)
            await etcd.maintenance.defragment()
            quota = int((await read_room(etcd)).in_use / 0.9)
            kept = upkeep(etcd, Siblings(etcd, "d1"), time, 600.0, quota)
            recent = await etcd.put("a", b"1")
            await etcd.put("a", b"2")
            for _ in range(4):
                time.now += 61
                await kept.attend()
            assert (await read_room(etcd)).in_use >= 0.85 * quota
            assert not await compacted(etcd, recent)
    assert caplog.text.count("was defragmented") <= 1  # in four minutes


async def test_a_dispatcher_that_starts_leaves_the_upkeep_to_the_one_on_duty(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[set[str]] = []

    async def run(self: StoreUpkeep) -> None:
        known.append(set(self._siblings.alive))
        await asyncio.Event().wait()

    monkeypatch.setattr(StoreUpkeep, "run", run)
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        await until(lambda: len(known) == 2)
        assert known == [{d1.id}, {d1.id, d2.id}]


async def test_one_of_several_dispatchers_looks_after_etcd(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            time = Time()
            first = await etcd.put("a", b"1")
            await etcd.put("a", b"2")
            everybody = []
            for name in ("d1", "d2", "d3"):
                siblings = Siblings(etcd, name)
                siblings.alive.update(("d1", "d2", "d3"))
                everybody.append(upkeep(etcd, siblings, time))
            did = []
            for one in everybody:
                await one.attend()
            time.now += 90
            for one in everybody:
                before = await compacted(etcd, first)
                await one.attend()
                did.append(not before and await compacted(etcd, first))
            assert sorted(did) == [False, False, True]


async def test_since_when_etcd_is_usable_is_known_after_it_was_away(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        time = Time()
        kept = upkeep(etcd, Siblings(etcd, "d1"), time)
        await kept.attend()
        time.now += 5
        await kept.attend()
        assert kept.usable_since == -inf
        time.now += 11
        assert kept.usable_since == inf
        await kept.attend()
        assert kept.usable_since == time.now


async def test_upkeep_goes_on_after_etcd_was_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=2.0)) as etcd:
            siblings, time = Siblings(etcd, "d1"), Time()
            kept = upkeep(etcd, siblings, time)
            first = await etcd.put("a", b"1")
            await etcd.put("a", b"2")
            await kept.attend()
            time.now += 90
            await asyncio.to_thread(server.kill)
            work = asyncio.create_task(kept.run())
            await until(lambda: "etcd is not compacted, retrying" in caplog.text)
            await asyncio.to_thread(server.start)
            async with Etcd(server.access()) as patient:
                await until(lambda: compacted(patient, first))
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
