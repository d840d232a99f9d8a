"""The southbound process as a Ray actor."""

import asyncio
from typing import Any

from api.start.actors.service_thread import ServiceThread, node_address
from api.start.parts.common import tracing
from api.start.parts.southbound import make_southbound
from api.start.settings.settings import Settings


class Southbound:
    """A southbound process: holds the connections to switches, and the fence."""

    def __init__(self, id: str, settings: dict[str, Any], host: str, openflow: str) -> None:
        """`host` is where it listens; empty: at the address of its node.

        `openflow` is where switches connect; empty: at any port of the host.
        """
        listen = f"{host or node_address()}:0"

        async def run(settings: Settings, node: str, stop: asyncio.Event) -> None:
            async with tracing(settings, "southbound", id) as tracer:
                made = make_southbound(settings, id, node, listen, openflow or listen, tracer)
                await made.run(stop)

        self._thread = ServiceThread(id, settings, run)

    def ping(self) -> str:
        """The id of its node, once the actor is there."""
        return self._thread.node

    def stop(self) -> bool:
        """End the service in order; whether it has ended in time."""
        return self._thread.stop()
