"""Reports counters and sampled events to the control plane, for its statistics."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import asdict

from dzflow.errors import DzflowError
from dzflow.sdk.events.sorter import Counters
from dzflow.sdk.rest.api_protocol import ApiProtocol

_log = logging.getLogger("dzflow.sdk")

REPORT_EVERY = 10.0  # seconds
SAMPLES = 20  # events in a report
_LAST_REPORT = 1.0  # seconds that the report at the end may take


class Reporter:
    """Sends what changed since the last report, with a few of the published events."""

    def __init__(
        self, protocol: ApiProtocol, host: str, counters: Callable[[], dict[str, Counters]]
    ) -> None:
        self._protocol = protocol
        self._host = host
        self._counters = counters
        self._reported: dict[str, Counters] = {}
        self._lock = threading.Lock()
        self._samples: list[dict[str, Any]] = []
        self._seen = 0

    def sample(self, space: str, event: Mapping[str, object]) -> None:
        """Consider a published event for the next report; from any thread.

        Each event of a period has the same chance (reservoir sampling).
        """
        with self._lock:
            self._seen += 1
            if len(self._samples) < SAMPLES:
                self._samples.append(_sample(space, event))
            elif (place := int(random.random() * self._seen)) < SAMPLES:  # noqa: S311
                self._samples[place] = _sample(space, event)

    async def run(self) -> None:
        """Send reports, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_EVERY)
            try:
                await self.send()
            except (DzflowError, OSError) as error:
                _log.info("the control plane did not accept a report: %s", error)

    async def close(self) -> None:
        """Send the last report, if the control plane answers quickly."""
        with suppress(TimeoutError, DzflowError):
            async with asyncio.timeout(_LAST_REPORT):
                await self.send()

    async def send(self) -> None:
        """Send one report, unless nothing has changed since the last one."""
        now = self._counters()
        with self._lock:
            samples, seen = self._samples, self._seen
            self._samples, self._seen = [], 0
        increase = {
            space: found - self._reported.get(space, Counters()) for space, found in now.items()
        }
        counters = {
            space: {name: count for name, count in asdict(changed).items() if count}
            for space, changed in increase.items()
            if changed != Counters()
        }
        if counters or samples:
            events = [{**sample, "weight": seen / len(samples)} for sample in samples]
            body = {"host": self._host, "counters": counters, "events": events}
            await self._protocol.post("/reports", body)
            self._reported = now


def _sample(space: str, event: Mapping[str, object]) -> dict[str, Any]:
    return {"space": space, "time_us": time.time_ns() // 1_000, "values": dict(event)}
