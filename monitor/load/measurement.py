"""Measures the load of the control plane once per second, from the reports of configurators."""

import asyncio
from collections.abc import Callable

from configurators.environment import Clock
from dispatcher.knowledge.fleet import Fleet
from dzflow.aio import pause_until
from monitor.load.collector import Collector
from monitor.load.history import LoadHistory
from monitor.load.rates import LoadPage, show_load
from monitor.load.samples import Sample

_EVERY = 1.0  # seconds
_PAGE_SAMPLES = 300
_PAGE_ROWS = 5_000  # partitions in all samples of a page; about 1.5 MB of JSON


class LoadMeasurement:
    """Keeps the history of the load while `run` runs. `on_sample` is called with each new sample.

    Each API process measures by itself: all of them get the reports of all configurators.
    """

    def __init__(
        self, fleet: Fleet, clock: Clock, on_sample: Callable[[Sample], None] | None = None
    ) -> None:
        self.history = LoadHistory()
        self._fleet = fleet
        self._clock = clock
        self._on_sample = on_sample
        self._collector = Collector()
        fleet.configurator_changed.subscribe(self._configurator_changed)

    async def run(self) -> None:
        """Take a sample at each full second, until cancelled."""
        began = self._clock.monotonic()
        while True:
            await asyncio.sleep(pause_until(self._clock.wall(), _EVERY))
            now = self._clock.monotonic()
            sample = self._collector.sample(self._clock.wall(), now - began)
            began = now
            self.history.add(sample)
            if self._on_sample:
                self._on_sample(sample)

    def page(self, since: float, resolution: int) -> LoadPage:
        """The load after a time (seconds since 1970, or if negative: seconds before now).

        It has the finest resolution that reaches back so far, but no finer one than is asked for.
        """
        after = since if since >= 0 else self._clock.wall() + since
        found = self.history.since(after, resolution)
        samples = found.first(_PAGE_SAMPLES, _PAGE_ROWS)
        more = len(samples) < len(found.samples)
        views = [show_load(sample) for sample in samples]
        return LoadPage(found.resolution, views, samples[-1].at if more else None)

    def _configurator_changed(self, name: str) -> None:
        report = self._fleet.loads.get(name)
        if report:
            self._collector.note(report)
        else:
            # Its stream is closed: what it does until the next one opens, nobody knows when.
            self._collector.forget(name)
