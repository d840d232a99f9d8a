"""Records that are read: one that cannot be read does not keep others from being listed."""

import pytest

from dispatcher.requests.writing.stored_records import scan
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd


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
