"""What `/metrics` shows: everything that the catalogue lists, nothing else, with true values."""

import re
from pathlib import Path

import httpx
import pytest

from api.http.metrics.catalogue import LABELS, METRICS, MetricSpec
from api.http.metrics.families import family, histogram
from api.http.metrics.reference import tables
from configurators.histogram import Histogram, HistogramCounts
from dispatcher.views import Part
from tests.etcd import TestEtcd
from tests.metrics import families, value
from tests.rest import SCHEMA, advertisement, subscription
from tests.stack import Stack, StackOptions
from tests.support import until_sync

ROOT = Path(__file__).parents[3]


def test_all_metrics_of_a_running_control_plane_are_in_the_catalogue(
    client: httpx.Client, space: str
) -> None:
    assert client.post("/subscribe", json=[subscription(space)]).status_code == 207
    client.post("/reports", json={"host": "h2", "counters": {space: {"received": 1}}})
    found = families(client)
    assert found.keys() == METRICS.keys()
    for name, shown in found.items():
        spec = METRICS[name]
        assert (shown.type, shown.documentation) == (spec.type, spec.text)
        for sample in shown.samples:
            assert sample.labels.keys() - {"le"} == set(spec.labels)


def test_the_reference_page_lists_all_metrics() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    assert tables() in page, (
        "run: .venv/bin/python -m api.http.metrics.reference docs/reference/metrics.md"
    )


@pytest.mark.parametrize("spec", METRICS.values(), ids=METRICS)
def test_a_name_says_type_and_unit(spec: MetricSpec) -> None:
    assert re.fullmatch(r"dzflow(_[a-z]+)+", spec.name)
    assert spec.name.endswith("_total") == (spec.type == "counter")
    base = spec.name.removesuffix("_total")
    for unit in ("seconds", "bytes"):
        assert base.endswith(f"_{unit}") == (spec.unit == unit)
    assert spec.text.endswith(".")
    assert set(spec.labels) <= LABELS.keys()


def test_every_label_of_the_reference_page_is_used() -> None:
    assert {label for spec in METRICS.values() for label in spec.labels} == LABELS.keys()


def test_a_request_is_counted_in_every_stage(client: httpx.Client, space: str) -> None:
    def stages() -> dict[str, float]:
        return {
            stage: value(client, "dzflow_operation_stage_seconds_count", stage=stage)
            for stage in ("indexed", "journaled", "queued", "decided", "pushed", "committed")
        }

    before, sent = stages(), value(client, "dzflow_tasks_sent_total")
    added = value(client, "dzflow_flow_operations_total", kind="add")
    client.post("/advertise", json=advertisement(space))
    made = client.post("/subscribe", json=subscription(space)).json()
    assert stages() == {stage: count + 2 for stage, count in before.items()}
    assert value(client, "dzflow_operations_in_flight") == 0
    assert value(client, "dzflow_operations_queued") == 0
    assert value(client, "dzflow_tasks_sent_total") > sent
    assert value(client, "dzflow_flow_operations_total", kind="add") >= added + made["flow_ops"]
    deleted = value(client, "dzflow_flow_operations_total", kind="delete")
    gone = client.delete(f"/subscriptions/{made['id']}").json()
    assert gone["flow_ops"] > 0
    after = value(client, "dzflow_flow_operations_total", kind="delete")
    assert after == deleted + gone["flow_ops"]


def test_workers_report_what_they_have_counted(client: httpx.Client, space: str) -> None:
    client.post("/advertise", json=advertisement(space))

    def counted() -> dict[str, float]:
        return {
            "operations": value(client, "dzflow_switch_flow_operations_total", switch="s2"),
            "batches": value(client, "dzflow_switch_batches_total", outcome="acknowledged"),
            "pushes": value(client, "dzflow_southbound_push_seconds_count"),
            "by configurators": value(
                client, "dzflow_configurator_batches_total", outcome="acknowledged"
            ),
            "tasks": value(client, "dzflow_partition_tasks_total", space=space),
        }

    before = counted()
    client.post("/subscribe", json=subscription(space))
    until_sync(lambda: all(counted()[name] > count for name, count in before.items()))
    assert value(client, "dzflow_switch_connections_total", switch="s1") >= 1
    assert value(client, "dzflow_switch_up", switch="s1") == 1
    assert value(client, "dzflow_configurator_up", configurator="configurator-0") == 1
    assert value(client, "dzflow_configurator_undefined_tasks") == 0
    assert value(client, "dzflow_configurator_memory_bytes", configurator="configurator-0") > 1e7
    used = value(client, "dzflow_configurator_cpu_seconds_total", configurator="configurator-0")
    assert used > 0
    assert value(client, "dzflow_worker_start_time_seconds", worker="southbound-0") > 1e9
    assert value(client, "dzflow_worker_start_time_seconds", worker="configurator-0") > 1e9


def test_etcd_is_checked_and_timed(client: httpx.Client) -> None:
    until_sync(lambda: value(client, "dzflow_etcd_check_seconds_count") > 0)
    until_sync(lambda: value(client, "dzflow_etcd_up") == 1)
    failures = value(client, "dzflow_etcd_check_failures_total")
    assert failures < value(client, "dzflow_etcd_check_seconds_count")


def test_migrations_are_shown_as_the_mover_counts_them(client: httpx.Client, stack: Stack) -> None:
    async def move() -> None:
        counts = stack.dispatcher.metrics.migrations
        counts.ended("done")
        counts.held(0.02, 3)

    before = value(client, "dzflow_migrations_total", outcome="done")
    stack.run(move())
    assert value(client, "dzflow_migrations_total", outcome="done") == before + 1
    assert value(client, "dzflow_migrations_total", outcome="failed") == 0
    assert value(client, "dzflow_migration_held_seconds_bucket", le="0.025") == 1
    assert value(client, "dzflow_migration_held_seconds_bucket", le="0.01") == 0
    assert value(client, "dzflow_migration_held_requests_total") == 3


def test_lock_waits_and_repairs_are_counted(etcd_server: TestEtcd) -> None:
    with (
        Stack(etcd_server.access(), StackOptions(mode="sea")) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
    ):
        client.put("/spaces/locked", json=SCHEMA)
        client.post("/advertise", json=advertisement("locked"))
        assert client.post("/subscribe", json=subscription("locked")).status_code == 201
        until_sync(lambda: value(client, "dzflow_lock_wait_seconds_count") > 0)
        repairs = value(client, "dzflow_switch_repairs_total", switch="s2")

        async def restart() -> None:
            stack.network.agents["s2"].restart()

        stack.run(restart())
        until_sync(lambda: value(client, "dzflow_switch_repairs_total", switch="s2") > repairs)
        assert value(client, "dzflow_switch_connections_total", switch="s2") == 2


@pytest.mark.parametrize("up", [True, False])
def test_ray_is_shown_where_its_state_is_known(stack: Stack, up: bool) -> None:
    ray = Part("ray", up, None if up else "it is gone")
    with (
        stack.serving([ray]) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        until_sync(lambda: families(client)["dzflow_ray_up"].samples)
        assert value(client, "dzflow_ray_up") == up


def test_a_metric_without_values_is_named_all_the_same() -> None:
    assert family("dzflow_ray_up", {}).samples == []
    nothing = histogram("dzflow_lock_wait_seconds", {("c",): HistogramCounts()}, (1.0,))
    assert nothing.samples == []


def test_a_histogram_adds_its_counts_up() -> None:
    counts = Histogram((0.5, 1.0))
    for seconds in (0.5, 0.7, 0.7, 3.0):
        counts.observe(seconds)
    shown = histogram("dzflow_operation_seconds", {(): counts.current()}, counts.bounds)
    found = {(s.name, s.labels.get("le")): s.value for s in shown.samples}
    assert found == {
        ("dzflow_operation_seconds_bucket", "0.5"): 1,
        ("dzflow_operation_seconds_bucket", "1.0"): 3,
        ("dzflow_operation_seconds_bucket", "+Inf"): 4,
        ("dzflow_operation_seconds_count", None): 4,
        ("dzflow_operation_seconds_sum", None): pytest.approx(4.9),
    }
