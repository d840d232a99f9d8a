"""The status: what keeps a dispatcher from being ready."""

import asyncio

from tests.dispatcher.support import TIMEOUT, world
from tests.etcd import TestEtcd


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
