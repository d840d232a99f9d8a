"""Whether the service is ready, degraded or not ready, and since when each impairment lasts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from api.http.schema.models import ImpairmentOut, ReadyOut
from configurators.environment import Clock
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import Impairment, Part

_OBSERVE_EVERY = 1.0  # seconds: how exactly the beginning of an impairment is known


class Readiness:
    """Observes the health of the control plane, and remembers when each impairment began."""

    def __init__(
        self, more_parts: Callable[[], Awaitable[list[Part]]], clock: Clock | None = None
    ) -> None:
        """`more_parts` reports parts that the dispatcher does not know, such as Ray."""
        self._more_parts = more_parts
        self._clock = clock or Clock()
        self._began: dict[tuple[str, str], float] = {}

    async def read(self, dispatcher: Dispatcher) -> ReadyOut:
        """The state now."""
        more = await self._more_parts()
        health = dispatcher.health()
        impaired = [
            *health.impaired,
            *(Impairment("process", part.name, part.reason or "") for part in more if not part.ok),
        ]
        return ReadyOut(
            status="not ready" if not health.ready else "degraded" if impaired else "ready",
            ready=health.ready,
            reasons=health.reasons,
            impaired=self._dated(impaired),
            parts=[
                health.etcd,
                *health.dispatchers,
                *health.southbound,
                *health.configurators,
                *more,
            ],
            switches_up=health.switches_up,
            switches=health.switches,
            partitions_ready=health.partitions_ready,
            partitions=health.partitions,
        )

    async def observe(self, dispatcher: Dispatcher) -> None:
        """Observe the state again and again, until cancelled."""
        while True:
            await self.read(dispatcher)
            await asyncio.sleep(_OBSERVE_EVERY)

    def _dated(self, impaired: Iterable[Impairment]) -> list[ImpairmentOut]:
        now = self._clock.wall()
        found = {(each.kind, each.id): each for each in impaired}
        self._began = {key: self._began.get(key, now) for key in found}
        return [
            ImpairmentOut(each.kind, each.id, each.reason, self._began[key])
            for key, each in found.items()
        ]
