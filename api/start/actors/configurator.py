"""The configurator as a Ray actor."""

import asyncio
from typing import Any

from api.start.actors.service_thread import ServiceThread, node_address
from api.start.parts.common import tracing
from api.start.parts.configurator import make_configurator
from api.start.settings.settings import Settings


class Configurator:
    """A configurator: decides and pushes the flow changes of its partitions."""

    def __init__(
        self, id: str, settings: dict[str, Any], host: str, card: dict[str, Any] | None = None
    ) -> None:
        """`host` is where it listens; empty: at the address of its node.

        `card` is what `card` gives.
        """
        self._card = card or {}
        listen = f"{host or node_address()}:0"

        async def run(settings: Settings, node: str, stop: asyncio.Event) -> None:
            async with tracing(settings, "configurator", id) as tracer:
                await make_configurator(settings, id, node, listen, tracer).run(stop)

        self._thread = ServiceThread(id, settings, run)

    def ping(self) -> str:
        """The id of its node, once the actor is there."""
        return self._thread.node

    def card(self) -> dict[str, Any]:
        """Whose actor it is, and how it was made, as the process that made it has said."""
        return self._card

    def stop(self) -> bool:
        """End the service in order; whether it has ended in time."""
        return self._thread.stop()
