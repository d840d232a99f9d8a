"""Whether the service is ready, degraded or not ready, and since when each impairment lasts."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from api.http.schema.service import ImpairedCounts, ImpairmentOut, ReadyOut
from configurators.environment import Clock
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import Impairment, Part

MAX_IMPAIRED = 100
"""The number of impairments that are named; all are counted."""

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
        self._parts: dict[str, Part] = {}  # those that the dispatcher does not know
        self.draining = False  # this process is about to end: it gets no new callers

    async def read(self, dispatcher: Dispatcher, *, details: bool = True) -> ReadyOut:
        """The state now; without `details` it names no part, switch or partition, and no reason."""
        more = await self._more_parts()
        self._parts = {part.name: part for part in more}
        health = dispatcher.health()
        # Processes first: they are few, and switches or partitions may be the consequence.
        impaired = [
            *(Impairment("process", part.name, part.reason or "") for part in more if not part.ok),
            *health.impaired,
        ]
        dated = self._dated(impaired)
        kinds = Counter(each.kind for each in dated)
        parts = [
            health.etcd,
            *health.dispatchers,
            *health.southbound,
            *health.configurators,
            *more,
        ]
        ready, reasons = health.ready, health.reasons
        if self.draining:
            ready, reasons = False, ["this API process is about to end", *reasons]
        return ReadyOut(
            status="not ready" if not ready else "degraded" if impaired else "ready",
            ready=ready,
            impaired_counts=ImpairedCounts(
                kinds["switch"],
                kinds["partition"],
                kinds["process"],
                kinds.total(),
                kinds["document"],
            ),
            switches_up=health.switches_up,
            switches=health.switches,
            partitions_ready=health.partitions_ready,
            partitions=health.partitions,
            reasons=reasons if details else None,
            impaired=dated[:MAX_IMPAIRED] if details else None,
            parts=parts if details else None,
            store=health.store if details else None,
        )

    def is_up(self, part: str) -> bool | None:
        """Whether a part that the dispatcher does not know is in order; None if not known."""
        found = self._parts.get(part)
        return found.ok if found else None

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
