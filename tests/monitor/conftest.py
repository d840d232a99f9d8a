"""What a running control plane shows, for the tests of the dashboard and the alerts."""

from collections.abc import Iterator, Mapping

import httpx
import pytest
from prometheus_client.core import Metric

from dispatcher.views import Part
from tests.etcd import TestEtcd
from tests.metrics import families, value
from tests.rest import SCHEMA, advertisement, subscription
from tests.stack import Stack, StackOptions
from tests.support import until_sync


@pytest.fixture(scope="session")
def shown(etcd_server: TestEtcd) -> Iterator[Mapping[str, Metric]]:
    """All metrics of a control plane in mode sea, after a few requests."""
    with (
        Stack(etcd_server.access(), StackOptions(mode="sea")) as stack,
        stack.serving([Part("ray", True)]) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        client.put("/spaces/stocks", json=SCHEMA)
        client.post("/advertise", json=[advertisement("stocks")])
        client.post("/subscribe", json=[subscription("stocks"), subscription("nowhere")])
        client.post("/reports", json={"host": "h2", "counters": {"stocks": {"received": 1}}})
        until_sync(lambda: value(client, "dzflow_lock_wait_seconds_count") > 0)
        until_sync(lambda: value(client, "dzflow_switch_flow_operations_total") > 0)
        until_sync(lambda: families(client)["dzflow_ray_up"].samples)
        yield families(client)
