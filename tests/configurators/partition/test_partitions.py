"""The partitions of a configurator: what its reports say of them."""

from configurators.environment import Clock
from configurators.partition.known_state import KnownState
from configurators.partition.options import PartitionOptions
from configurators.partition.partitions import Partitions
from tests.configurators.partition.test_worker import Bench, Tables, subscribe


async def test_a_report_has_the_last_counters_of_partitions_that_were_left() -> None:
    partitions = Partitions(KnownState(), Tables(), lambda: None, PartitionOptions(), Clock())
    bench = Bench("legs", "net", 1_000, 0)
    partitions.owned["1.0/all"] = bench.worker
    report = partitions.load("c1", 5, 1.5, [])
    assert (report.configurator, report.memory, report.cpu_s) == ("c1", 5, 1.5)
    assert [part.partition for part in report.partitions] == ["1.0/all"]
    assert report.left == []
    bench.put(subscribe("s", "0"))
    del partitions.owned["1.0/all"]
    report = partitions.load("c1", 5, 1.5, [])
    assert report.partitions == []
    assert [part.counters.arrived for part in report.left] == [1]
    assert partitions.load("c1", 5, 1.5, []).left == []


async def test_a_worker_that_was_replaced_was_left() -> None:
    partitions = Partitions(KnownState(), Tables(), lambda: None, PartitionOptions(), Clock())
    first, second = Bench("legs", "net", 1_000, 0), Bench("legs", "net", 1_000, 0)
    partitions.owned["1.0/all"] = first.worker
    partitions.load("c1", 0, 0.0, [])
    first.put(subscribe("s", "0"))
    partitions.owned["1.0/all"] = second.worker
    report = partitions.load("c1", 0, 0.0, [])
    assert [part.counters.arrived for part in report.left] == [1]
    assert [part.counters.arrived for part in report.partitions] == [0]
