"""Adds, moves and removes hosts; a call returns when all processes have applied the change."""

import asyncio
from collections.abc import Callable

from configurators.environment import Clock
from configurators.state.network import topology_of, with_host, without_host
from configurators.store.documents import decode_network, encode
from configurators.store.etcd.client import Etcd, Put, unchanged
from configurators.store.keys import NETWORK
from configurators.store.model import NetworkDoc
from dispatcher.errors import Conflict, NotFound, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.requests.writing.stored_records import scan
from dispatcher.views import HostView
from dzflow.aio import wait_until_set
from sdn.network.topology import Host
from sdn.tables.pipeline import OutOfTables

_TRIES = 10
_NAMED = 20
_POLL = 0.5


class Hosts:
    """The hosts of the network."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        reachability: Reachability,
        timeout: float,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._reachability = reachability
        self._timeout = timeout
        self._clock = clock
        self._changed = asyncio.Event()
        fleet.switches_changed.subscribe(self._changed.set)
        fleet.configurator_changed.subscribe(lambda _: self._changed.set())

    def views(self) -> list[HostView]:
        """All hosts."""
        doc = self._catalogue.network_doc
        return [self.view(host) for host in doc.hosts] if doc else []

    def view(self, host: Host) -> HostView:
        """A host as users see it."""
        wire = self._catalogue.wires.get(host.id)
        return HostView(
            host.id,
            host.switch,
            host.port,
            host.mac,
            host.ipv6,
            f"{wire[0]}:{wire[1]}" if wire else None,
            self._reachability.cut_off(host.id),
        )

    async def put(self, host: Host) -> HostView:
        """Add or move a host; TopologyError if it does not fit, Unavailable if not all apply it."""
        await self.change_network(lambda doc: with_host(doc, host))
        return self.view(host)

    async def delete(self, name: str) -> HostView:
        """Remove a host, which is returned; NotFound, or Conflict while it has records."""
        known = self._find(self._catalogue.network_doc, name)
        await self._check_unused(name)

        def without(doc: NetworkDoc) -> NetworkDoc:
            self._find(doc, name)
            return without_host(doc, name)

        await self.change_network(without)
        try:
            await self._check_unused(name)
        except Conflict:
            # A record of the host was begun before all dispatchers knew that the host goes.
            await self.change_network(lambda doc: with_host(doc, known))
            raise
        return self.view(known)

    async def _check_unused(self, name: str) -> None:
        """Conflict if a host has records."""
        ids: list[str] = []
        async for _, (record, _) in scan(self._etcd):
            if record.host == name:
                ids.append(record.id)
                if len(ids) == _NAMED:
                    break
        if ids:
            raise Conflict(f"{name!r} still has {', '.join(ids)}; end them first", ids=tuple(ids))

    def _find(self, doc: NetworkDoc | None, name: str) -> Host:
        for host in doc.hosts if doc else ():
            if host.id == name:
                return host
        raise NotFound(f"there is no host {name[:64]!r}; GET /hosts lists all hosts")

    async def change_network(self, change: Callable[[NetworkDoc], NetworkDoc]) -> None:
        """Change the stored network, and return when all processes have applied it.

        Unavailable if they do not in time. What `change` raises leaves the network as it is.
        """
        for _ in range(_TRIES):
            stored = await self._etcd.get(NETWORK)
            if stored is None:
                raise Unavailable("there is no network yet; no southbound process has started", 2.0)
            doc = decode_network(stored.value)
            try:
                changed = change(doc)
            except OutOfTables as error:
                raise _explained(error, doc) from None
            if changed == doc:
                await self._wait_until_applied(stored.revision)
                return
            result = await self._etcd.transact(
                [unchanged(NETWORK, stored.revision)], [Put(NETWORK, encode(changed))]
            )
            if result.succeeded:
                await self._catalogue.refresh_network()
                await self._wait_until_applied(result.revision)
                return
        raise Unavailable("others are changing the network at the same time; try again")

    async def _wait_until_applied(self, revision: int) -> None:
        deadline = self._clock.monotonic() + self._timeout
        reach = self._reachability
        while missing := [*reach.missing(revision), *reach.unsettled_maps()]:
            if self._clock.monotonic() > deadline:
                raise Unavailable(
                    f"the change is stored, but not applied yet by {', '.join(missing)}", 5.0
                )
            self._changed.clear()
            await wait_until_set(self._changed, _POLL)


def _explained(error: OutOfTables, doc: NetworkDoc) -> OutOfTables | Unavailable:
    """The error, unless tables of hosts that are gone are to be freed: then it is worth waiting."""
    gone = doc.pipeline.unused(topology_of(doc)).get(error.switch)
    if gone is None:
        return error
    return Unavailable(
        f"switch {error.switch} has no free table; those of {len(gone.tables)} hosts that are gone"
        " become free when the switch has confirmed that nothing is left in them; try again",
        2.0,
    )
