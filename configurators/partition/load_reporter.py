"""Reports the load of a configurator's partitions to all dispatchers."""

import asyncio
from collections.abc import Callable, Iterable

from configurators.environment import Clock
from configurators.partition.slices.replies import send_if_open
from configurators.streams.messages import Load
from configurators.streams.stream import Stream
from dzflow.aio import OncePerTurn, pause_until


class LoadReporter:
    """Sends the load regularly, and soon after `schedule` is called.

    All configurators report in the middle of a second (of `every`). Receivers take samples at full
    seconds, so each of their intervals has one regular report, even if it is late.
    """

    def __init__(
        self,
        load: Callable[[], Load],
        streams: Callable[[], Iterable[Stream]],
        every: float,
        clock: Clock,
    ) -> None:
        self._load = load
        self._streams = streams
        self._every = every
        self._clock = clock
        self._soon = OncePerTurn(self._report)

    def schedule(self) -> None:
        """Report in the next turn of the event loop, because the load has changed."""
        self._soon.schedule()

    async def run(self) -> None:
        """Report regularly, until cancelled."""
        while True:
            self._report()
            await asyncio.sleep(pause_until(self._clock.wall(), self._every, self._every / 2))

    def _report(self) -> None:
        message = self._load()
        for stream in list(self._streams()):
            send_if_open(stream, message)
