"""Records with a ttl end when nobody renews them."""

import asyncio
import time
from math import inf
from pathlib import Path
from typing import cast

import pytest

from configurators.environment import Clock
from configurators.store.etcd.client import Etcd, Put, StoreFull
from configurators.store.keys import record_key, ttl_key
from dispatcher.calls import RecordSpec
from dispatcher.changes.expiry import Expiry
from dispatcher.errors import Conflict, NotFound
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.knowledge.siblings import Siblings
from dispatcher.metrics import Metrics
from dispatcher.requests.intake.intake import Intake
from tests.dispatcher.changes.test_store_upkeep import MIB, SMALL, fill, level
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd, running
from tests.support import until


async def test_a_record_ends_when_its_time_is_up_unless_it_is_renewed(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        some = [RecordSpec("h1", "stocks", {"price": n}, ttl=ttl) for n, ttl in ((1, 2), (2, 600))]
        short, long = views(await d1.begin("subscription", some, wait=TIMEOUT))
        [forever] = views(await d1.begin("subscription", specs(1), wait=TIMEOUT))
        assert long.expires == pytest.approx(long.created + 600)
        renewed = await d2.renew("subscription", long.id)
        assert renewed.expires
        assert renewed.expires > time.time() + 590
        with pytest.raises(Conflict):
            await d2.renew("subscription", forever.id)

        async def gone() -> bool:
            return (await d1.record(short.id)).state == "removed"

        await until(gone)
        with pytest.raises(NotFound):
            await d2.renew("subscription", short.id)
        left = {record.id for record in (await d2.records("subscription")).items}
        assert left == {long.id, forever.id}
        assert w.installed() == await w.expected()
        assert [item.key for item in (await w.etcd.range("ttl/")).items] == [f"ttl/{long.id}"]


async def test_a_record_that_cannot_be_read_does_not_keep_others_from_ending(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        some = [RecordSpec("h1", "stocks", {"price": n}, ttl=600) for n in (1, 2)]
        odd, short = views(await d.begin("subscription", some, wait=TIMEOUT))
        await w.etcd.put(record_key(odd.id), b"\x00 rubbish")
        soon = str(time.time() + 0.5).encode()
        await w.etcd.transact([], [Put(ttl_key(each.id), soon) for each in (odd, short)])

        async def gone() -> bool:
            return (await d.record(short.id)).state == "removed"

        await until(gone)


async def test_a_record_that_is_being_removed_is_not_renewed(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        ask = RecordSpec("h1", "stocks", {}, ttl=600)
        [record] = views(await d.begin("subscription", [ask], wait=TIMEOUT))
        w.hold()
        await d.end("subscription", [record.id], wait=0)
        with pytest.raises(NotFound, match="being removed"):
            await d.renew("subscription", record.id)


async def test_a_record_that_could_not_be_renewed_while_etcd_was_full_can_be_renewed_afterwards(
    tmp_path: Path,
) -> None:
    with running(tmp_path, options=SMALL) as server:
        async with world(server.access()) as w, w.dispatcher(quota=8 * MIB) as d:
            ask = RecordSpec("h1", "stocks", {}, ttl=12)
            [record] = views(await d.begin("subscription", [ask], wait=TIMEOUT))
            assert record.expires
            await fill(w.etcd, "foreign/")
            await until(lambda: level(d) == "full")
            with pytest.raises(StoreFull):
                await d.renew("subscription", record.id)
            await asyncio.sleep(max(0.0, record.expires + 2 - time.time()))
            assert not d.metrics.expired
            await w.etcd.delete("foreign/", prefix=True)
            assert not (await d.compact_store()).full
            await asyncio.sleep(2)
            renewed = await d.renew("subscription", record.id)
            assert renewed.expires
            assert renewed.expires > time.time()


async def test_renewals_and_early_ends_do_not_make_the_schedule_grow(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        times = ExpiryTimes(etcd, Clock())
        intake = cast("Intake", None)  # nothing expires here
        siblings = Siblings(etcd, "d1")
        expiry = Expiry(etcd, times, intake, siblings, Metrics(), Clock(), lambda: -inf)
        later = time.time() + 3_600
        for number in range(5_000):
            times.changed.emit("s1-renewed", later + number)
        assert expiry.scheduled == 1
        for number in range(5_000):
            times.changed.emit(f"s1-{number}", later)
            times.gone.emit(f"s1-{number}")
        assert expiry.scheduled < 1_100
