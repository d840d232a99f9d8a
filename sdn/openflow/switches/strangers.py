"""Switches that are connected, but not part of the network yet."""

import asyncio
from collections import Counter
from collections.abc import Callable

from sdn.openflow.connections.connection import ConnectionLost, SwitchConnection

MAX_STRANGERS = 1_000
"""Connections that wait; a client that may connect could claim any number of datapath ids."""


class TooManyStrangers(ConnectionLost):
    """So many switches wait already that another one cannot."""


class Strangers:
    """Keeps connections of switches until the network has them; `changed` is called on a change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._waiting: Counter[int] = Counter()
        self._network_came = asyncio.Event()

    def dpids(self) -> tuple[int, ...]:
        """The datapath ids that wait, in order."""
        return tuple(sorted(self._waiting))

    def network_changed(self) -> None:
        """Look again which of them are part of the network."""
        self._network_came.set()
        self._network_came = asyncio.Event()

    async def wait(
        self, dpid: int, connection: SwitchConnection, name: Callable[[int], str | None]
    ) -> str:
        """Wait until the network has a `name` for a datapath id; ConnectionLost if it ends."""
        if self._waiting.total() >= MAX_STRANGERS:
            raise TooManyStrangers(f"{MAX_STRANGERS} switches wait to join the network already")
        self._waiting[dpid] += 1
        self._changed()
        ended = asyncio.ensure_future(connection.ended.wait())
        try:
            while (found := name(dpid)) is None:
                came = asyncio.ensure_future(self._network_came.wait())
                try:
                    await asyncio.wait([came, ended], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    came.cancel()
                if connection.ended.is_set():
                    raise ConnectionLost(connection.lost or "the connection ended")
            return found
        finally:
            ended.cancel()
            self._waiting[dpid] -= 1
            self._waiting += Counter()  # without those of which none is left
            self._changed()
