"""Reads `/metrics` in tests."""

import httpx
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


def families(client: httpx.Client) -> dict[str, Metric]:
    """All metrics by name, as the service shows them now; the names of counters end in `_total`."""
    text = client.get("/metrics").text
    return {
        f"{found.name}_total" if found.type == "counter" else found.name: found
        for found in text_string_to_metric_families(text)
    }


def value(client: httpx.Client, series: str, **labels: str) -> float:
    """The sum of the values of a series, over all its samples with these labels."""
    return sum(
        sample.value
        for found in families(client).values()
        for sample in found.samples
        if sample.name == series and labels.items() <= sample.labels.items()
    )
