"""A change of schema waits for operations that are open, however long they are."""

import asyncio

import pytest

from dispatcher.changes import index_change
from dispatcher.requests.writing.stored_records import scan
from tests.dispatcher.support import SCHEMA, TIMEOUT, specs, world
from tests.etcd import TestEtcd
from tests.support import until

WIDER = {"attributes": [{"name": "price", "type": "float", "min": 0, "max": 2000}]}
WIDER["attributes"] += SCHEMA["attributes"][1:]  # type: ignore[arg-type]
LOOKS = 1_200  # more than calls may be nested in Python


async def test_a_change_of_schema_waits_for_an_open_request_as_long_as_it_takes(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    def counted(*given: object) -> object:
        nonlocal looks
        looks += 1
        return scan(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(index_change, "_PAUSE", 0.0)
    monkeypatch.setattr(index_change, "scan", counted)
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        w.hold()
        await d.begin("subscription", specs(1), wait=0)
        change = asyncio.create_task(d.put_space("stocks", WIDER))
        await until(lambda: looks > LOOKS or change.done())
        await w.release()
        async with asyncio.timeout(TIMEOUT):
            assert (await change).version == 1
    assert "RecursionError" not in caplog.text
