"""One document that cannot be read does not keep others from being followed and listed."""

import asyncio

import pytest

from configurators.store.etcd.client import Etcd
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.stored_records import scan
from tests.dispatcher.support import TIMEOUT, eventually, specs, views, world
from tests.etcd import TestEtcd


async def test_an_unreadable_document_is_left_out_and_others_are_followed(
    etcd_server: TestEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    access = etcd_server.access()
    async with world(access) as w, Etcd(access) as etcd:
        await w.etcd.put("spaces/bad", b"\xc1")
        await w.etcd.put("owners/bad", b"\xff")
        catalogue = Catalogue(etcd)
        await catalogue.start()
        assert catalogue.spaces.get("stocks")
        await w.etcd.put("spaces/worse", b"\xc1")
        await w.space("sports", 2)

        async def known() -> bool:
            return catalogue.spaces.get("sports") is not None

        await eventually(known)
        assert not any(task.done() for task in catalogue.tasks())
        await catalogue.stop()
    assert caplog.text.count("is left out") == 3


async def test_an_unreadable_record_is_left_out_of_lists(
    etcd_server: TestEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        made = views(await d.begin("subscription", specs(3), wait=TIMEOUT))
        await w.etcd.put("records/1/s1-0", b"\xc1")
        page = await d.records("subscription")
        assert {record.id for record in page.items} == {record.id for record in made}
        assert len([held async for _, held in scan(w.etcd)]) == 3
    assert "records/1/s1-0 is left out" in caplog.text


async def test_a_dispatcher_reports_a_background_task_that_no_longer_runs(
    etcd_server: TestEtcd,
) -> None:
    name = "adopt abandoned operations"
    async with world(etcd_server.access()) as w, w.dispatcher(id="d1") as d:
        assert not any(reason.startswith("d1:") for reason in d.health().reasons)
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == name]
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT)
        health = d.health()
        why = f"the task {name!r} is no longer running: restart this process"
        assert f"d1: {why}" in health.reasons
        assert [(part.name, part.reason) for part in health.dispatchers] == [("d1", why)]
        assert not health.ready
