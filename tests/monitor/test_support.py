"""The checks of PromQL find mistakes in it."""

from collections.abc import Mapping

import pytest
from prometheus_client.core import Metric

from tests.monitor.support import check_aggregation, check_names, unit_of
from tests.promql import read


@pytest.mark.parametrize(
    "text",
    [
        "sum(rate(dzflow_operation_total[5m]))",
        "sum(rate(dzflow_operations_total_bucket[5m]))",
        "sum(rate(dzflow_operation_seconds[5m]))",
        'sum(rate(dzflow_operations_total{result="done"}[5m]))',
        'sum(rate(dzflow_operations_total{outcome="ok"}[5m]))',
        'sum(rate(dzflow_reported_events_total{counter="unwnated"}[5m]))',
        "sum by (host) (rate(dzflow_operations_total[5m]))",
        "sum by (le) (rate(dzflow_operation_seconds_sum[5m]))",
        "1 > 0",
    ],
)
def test_a_wrong_name_is_found(text: str, shown: Mapping[str, Metric]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check_names(read(text), shown)


@pytest.mark.parametrize(
    "text",
    [
        "sum(dzflow_switches_up)",  # each API process knows all switches
        "max(rate(dzflow_operations_total[5m]))",  # each API process counts its own
        "sum(dzflow_operations_total)",
        "sum(rate(dzflow_operations_queued[5m]))",
        "sum(rate(dzflow_operations_total))",
        "histogram_quantile(0.9, sum by (le) (rate(dzflow_operation_seconds_sum[5m])))",
    ],
)
def test_a_wrong_aggregation_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check_aggregation(read(text))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("max(dzflow_etcd_size_bytes)", "bytes"),
        ("max(dzflow_etcd_size_bytes) / max(dzflow_etcd_quota_bytes)", "ratio"),
        ("sum(rate(dzflow_operations_total[5m]))", "requests per second"),
        ("60 * sum(rate(dzflow_migrations_total[5m]))", "migrations per minute"),
        ("sum(increase(dzflow_migrations_total[5m]))", "migrations"),
        ("histogram_quantile(0.9, sum(rate(dzflow_operation_seconds_bucket[5m])))", "seconds"),
    ],
)
def test_the_unit_of_an_expression_follows_from_its_metrics(text: str, unit: str) -> None:
    assert unit_of(read(text)) == unit


def test_things_of_different_kinds_cannot_be_divided() -> None:
    text = "max(dzflow_etcd_size_bytes) / max(dzflow_switches)"
    with pytest.raises(AssertionError):
        unit_of(read(text))
