"""Our rules on one switch as ONOS lists them."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from sdn.onos import codec
from sdn.onos.client import OnosClient, OnosNotFound, parsed
from sdn.onos.wire import ADDED, PENDING_REMOVE, REMOVED, Device, Flows
from sdn.tables.flows import FlowEntry, FlowKey

_FLOWS = parsed(Flows)
_DEVICE = parsed(Device)


class ListedRule(NamedTuple):
    """A rule that ONOS holds: its id, its state, and our entry for it."""

    id: str
    state: str
    entry: FlowEntry


class Listing(NamedTuple):
    """Our rules by key, and the ids of rules that we would never write."""

    held: dict[FlowKey, ListedRule]
    odd: list[str]

    def on_switch(self) -> list[FlowEntry]:
        """The rules that the switch has as far as ONOS knows."""
        return [h.entry for h in self.held.values() if h.state in (ADDED, PENDING_REMOVE)]


def read(content: bytes, app: str, groups: Mapping[int, int]) -> Listing:
    """Our rules in an answer of ONOS; rules of other applications are ignored."""
    listing = Listing({}, [])
    for flow in _FLOWS(content).flows:
        if flow.app_id != app or flow.state == REMOVED:
            continue
        entry = codec.decode(flow, groups)
        if entry is None:
            listing.odd.append(str(flow.id))
        else:
            listing.held[entry.key] = ListedRule(str(flow.id), flow.state, entry)
    return listing


class Lister:
    """Lists the rules of one switch; concurrent callers share a request."""

    def __init__(self, client: OnosClient, app: str, device: str) -> None:
        self.groups: Mapping[int, int] = {}  # of each port with a host
        self._client = client
        self._app = app
        self._device = device
        self._asking: asyncio.Task[Listing] | None = None
        self._next: asyncio.Task[Listing] | None = None

    async def list(self) -> Listing:
        """The rules as they are now or later; an answer that is in progress already is too old."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask(self._asking))
            # All callers may have been cancelled.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel all requests."""
        tasks = [task for task in (self._asking, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, before: "asyncio.Task[Listing] | None") -> Listing:
        if before is not None:
            await asyncio.wait([before])
        self._asking, self._next = self._next, None
        groups = self.groups
        try:
            return await self._client.get(
                "flows", self._device, parse=lambda content: read(content, self._app, groups)
            )
        except OnosNotFound:
            # ONOS answers the same for a switch without rules and an unknown switch.
            await self._client.get("devices", self._device, parse=_DEVICE)
            return Listing({}, [])
