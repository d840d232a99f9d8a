"""A few seconds of a soak on a real, small service: every figure is there."""

from pathlib import Path

from tests.soak.report import all_series
from tests.soak.run import Options, soak


def test_a_few_seconds_of_load_are_measured(tmp_path: Path) -> None:
    options = Options(
        minutes=0.05,
        every=1.0,
        active=200,
        keyed=0.5,
        batch=50,
        topology="line:3",
        settings={"partitions": 3, "configurators": 1},
    )
    samples = soak(options, tmp_path / "soak", 10.0, lambda _: None)
    last = samples[-1]
    assert not any(sample.failed for sample in samples)
    assert all(sample.requests_per_s > 0 for sample in samples)
    roles = {"api", "configurators", "southbound", "network", "etcd", "ray", "load"}
    assert roles <= set(last.memory)
    assert roles <= set(last.cpu_us)
    assert all(last.memory[role] > 1 for role in roles)
    assert last.etcd["records"] > 0
    assert last.etcd["finished"] > 0
    assert last.etcd["idempotency"] > 0
    assert last.etcd["size"] >= last.etcd["in_use"] > 0
    assert last.disk["etcd"] > 0
    assert {"logs", "ray"} <= set(last.disk)
    assert len(all_series(samples)) > 20
    assert (tmp_path / "soak" / "soak.svg").exists()
