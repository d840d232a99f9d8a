"""The measurement of the load: what reaches the history, and pages of it."""

import asyncio
from typing import cast

import pytest

from configurators.environment import Clock
from configurators.streams.messages import Load, PartitionLoad, WorkCounters
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.signals import Signal
from monitor.load import measurement
from monitor.load.measurement import LoadMeasurement
from monitor.load.samples import Sample
from tests.monitor.samples import partition, sample
from tests.support import WAIT

NOW = 1_000_000.0


class Reports:
    """The reports of configurators, as a fleet has them."""

    def __init__(self) -> None:
        self.loads: dict[str, Load] = {}
        self.configurator_changed: Signal[str] = Signal()

    def come(self, name: str, done: int) -> None:
        counters = WorkCounters(7, done, done)
        part = PartitionLoad("p", 7, "ready", 0, 0, 0, done, counters=counters)
        self.loads[name] = Load(name, 1, [part])
        self.configurator_changed.emit(name)

    def close(self, name: str) -> None:
        del self.loads[name]
        self.configurator_changed.emit(name)


def measuring(reports: Reports) -> LoadMeasurement:
    return LoadMeasurement(cast(Fleet, reports), Clock(wall=lambda: NOW))


async def test_reports_become_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_EVERY", 0.02)
    reports = Reports()
    samples: asyncio.Queue[Sample] = asyncio.Queue()
    measured = LoadMeasurement(cast(Fleet, reports), Clock(), samples.put_nowait)
    for done in (5, 8):
        reports.come("c1", done)
    reports.close("c1")
    for done in (50, 51):
        reports.come("c1", done)
    running = asyncio.create_task(measured.run())
    try:
        async with asyncio.timeout(WAIT):
            first, second = await samples.get(), await samples.get()
    finally:
        running.cancel()
    assert [part.done for part in first.partitions] == [4]
    assert second.partitions == ()
    assert 0 < first.at < second.at
    assert second.seconds > 0
    assert measured.history.newest is not None


def test_a_page_begins_at_a_time_or_so_many_seconds_ago() -> None:
    measured = measuring(Reports())
    assert measured.page(-60, 1).items == []
    for second in range(100):
        measured.history.add(sample(NOW - 99 + second, partition("p", done=second)))
    found = measured.page(NOW - 2, 1)
    assert [item.at for item in found.items] == [NOW - 1, NOW]
    assert (found.resolution, found.next) == (1, None)
    assert measured.page(-2, 1) == found
    assert [item.partitions[0].done_per_s for item in found.items] == [98.0, 99.0]


def test_a_long_history_comes_in_pages() -> None:
    measured = measuring(Reports())
    for second in range(100):
        parts = [partition(f"p{number}") for number in range(200)]
        measured.history.add(sample(NOW - 99 + second, *parts))
    ends: list[float] = []
    since: float | None = NOW - 100
    while since is not None:
        page = measured.page(since, 1)
        assert 0 < sum(len(item.partitions) for item in page.items) <= 5_000
        ends += [item.at for item in page.items]
        since = page.next
    assert ends == [NOW - 99 + second for second in range(100)]
