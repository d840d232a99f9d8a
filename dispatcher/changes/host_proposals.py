"""Hosts that southbound processes have heard: an operator accepts or rejects them.

With the mode `accept`, hosts about which there is no doubt join by themselves, when they have been
alone at one port for a while. All dispatchers know which these are; the one with the lowest id
decides, as for switches and links. Proposals are not stored: whatever restarts, hosts are heard
again. Rejections are.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.learned_hosts import (
    HostMode,
    HostTaken,
    Proposal,
    find_proposals,
    with_accepted,
    with_learned,
)
from configurators.store.documents import RejectedHosts, decode_rejected_hosts, encode
from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import NETWORK, REJECTED_HOSTS
from configurators.store.model import NetworkDoc
from dispatcher.changes.hosts import Hosts
from dispatcher.errors import Conflict, NotFound, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.signals import Signal
from dispatcher.views import HostView, ProposalsSummary, ProposalView
from sdn.network.findings import SeenHost
from sdn.network.topology import Host
from sdn.tables.pipeline import OutOfGroups

_log = logging.getLogger(__name__)

MOST_REJECTED = 1_000
"""Rejections that are kept; the oldest ones go first."""

_BATCH = 0.3  # seconds between two changes: hosts that settle meanwhile join together
_PAUSE = 1.0  # seconds after etcd did not answer
_TRIES = 10

_Place = tuple[str, str, int]


class HostProposals:
    """The hosts that may join; `run` has them join in the mode `accept`, until it is cancelled."""

    def __init__(
        self,
        etcd: Etcd,
        siblings: Siblings,
        catalogue: Catalogue,
        fleet: Fleet,
        hosts: Hosts,
        mode: HostMode,
        accept_after: float,
        clock: Clock,
    ) -> None:
        self.mode: HostMode = mode
        self.changed: Signal[()] = Signal()
        """Emitted when there may be other proposals."""
        self._etcd = etcd
        self._siblings = siblings
        self._catalogue = catalogue
        self._fleet = fleet
        self._hosts = hosts
        self._accept_after = accept_after
        self._clock = clock
        self._woken = asyncio.Event()
        self._known: list[Proposal] | None = None  # until something changes
        self._rejected = frozenset(catalogue.rejected_hosts)
        self._shown: tuple[list[Proposal], RejectedHosts] | None = None  # what the version is of
        self._version = 0
        self._first: dict[_Place, float] = {}  # since when a host could join from where it is
        for signal in (
            fleet.hosts_changed,
            fleet.found_changed,
            fleet.switches_changed,
            catalogue.network_changed,
            catalogue.rejected_hosts_changed,
        ):
            signal.subscribe(self._forget_known)
        siblings.gone.subscribe(lambda _: self._woken.set())

    # What there is

    def proposals(self) -> list[Proposal]:
        """All hosts that were heard and may join, rejected ones, too, by id."""
        if self._known is None:
            doc, seen = self._catalogue.network_doc, list(self._seen())
            if doc is None or not seen:
                self._known = []
                return self._known
            reports = list(self._fleet.found.values())
            links = {link for report in reports for link in report.links}
            crossed = {end for report in reports for pair in report.crossed for end in pair}
            self._known = find_proposals(doc, seen, links, crossed)
        return self._known

    def views(self) -> list[ProposalView]:
        """The same as users see it."""
        return [self._view(one) for one in self.proposals()]

    def summary(self) -> ProposalsSummary:
        """How many there are, and a version that tells whether any has changed."""
        shown = self.proposals(), self._catalogue.rejected_hosts
        if shown != self._shown:
            self._shown = shown
            self._version += 1
        states = Counter(self._state(one) for one in self.proposals())
        return ProposalsSummary(self.mode, states["proposed"], states["rejected"], self._version)

    def _seen(self) -> Iterator[SeenHost]:
        """What southbound processes have heard from the switches that they have now."""
        for name, report in self._fleet.hosts.items():
            held = self._fleet.switch_reports.get(name)
            switches = frozenset(held.switches) if held else frozenset()
            yield from (one for one in report.hosts if one.host.switch in switches)

    def _view(self, one: Proposal) -> ProposalView:
        host = one.host
        return ProposalView(
            host.id,
            host.switch,
            host.port,
            host.mac or "",
            host.ipv6,
            one.since,
            self._state(one),
            one.problem,
            one.doubt,
        )

    def _state(self, one: Proposal) -> Literal["proposed", "rejected"]:
        return "rejected" if one.host.mac in self._rejected else "proposed"

    def _find(self, id: str) -> Proposal:
        for one in self.proposals():
            if one.host.id == id:
                return one
        raise NotFound(f"no host {id[:64]!r} is proposed (any more); GET /host-proposals lists all")

    # What operators decide

    async def accept(
        self, id: str, name: str | None = None, at: tuple[str, int] | None = None
    ) -> tuple[HostView, bool]:
        """Have a proposed host join, and return when all processes know it; whether it is new.

        It gets the id `name`, if given. NotFound, or Conflict if it is not (or no longer) `at` this
        switch and port, or would take something from another host.
        """
        name = name or id
        if known := self._joined(id, name):
            await self._hosts.change_network(lambda doc: doc)  # wait until all processes know it
            return self._hosts.view(known), False
        proposal = self._find(id)
        host = replace(proposal.host, id=name)
        if at is not None and at != (host.switch, host.port):
            raise Conflict(
                f"host {id} is at port {host.port} of {host.switch} now: look whether it has moved,"
                " or somebody pretends to be it"
            )
        try:
            await self._hosts.change_network(lambda doc: with_learned(doc, host))
        except HostTaken as error:
            raise Conflict(str(error)) from None
        await self._forgive(host.mac or "")
        _log.warning("host %s joins at port %d of %s", name, host.port, host.switch)
        return self._hosts.view(host), True

    def _joined(self, id: str, name: str) -> Host | None:
        """The host that has joined from a proposal already: then a call was repeated."""
        doc = self._catalogue.network_doc
        for host in doc.hosts if doc else ():
            if host.id == name and host.mac and _id(host.mac) == id:
                return host
        return None

    async def reject(self, id: str) -> ProposalView:
        """Reject a proposed host: it does not join by itself, until it is accepted; NotFound."""
        proposal = self._find(id)
        await self._reject(proposal.host.mac or "")
        return self._view(proposal)

    async def remove(self, name: str) -> HostView:
        """Remove a host of the network, as `Hosts.delete`.

        If hosts join by themselves, it is rejected, too: it would be back after some seconds.
        """
        doc = self._catalogue.network_doc
        host = next((host for host in doc.hosts if host.id == name), None) if doc else None
        mac = (host.mac or "").lower() if host else ""
        if self.mode != "accept" or not mac or mac in self._rejected:
            return await self._hosts.delete(name)
        await self._reject(mac)
        try:
            return await self._hosts.delete(name)
        except (Conflict, NotFound):
            await self._forgive(mac)  # it stays, or somebody else has removed it
            raise

    async def _reject(self, mac: str) -> None:
        def change(macs: RejectedHosts) -> RejectedHosts:
            return macs if mac in macs else (*macs, mac)[-MOST_REJECTED:]

        await self._change_rejected(change)

    async def _forgive(self, mac: str) -> None:
        await self._change_rejected(lambda macs: tuple(one for one in macs if one != mac))

    async def _change_rejected(self, change: Callable[[RejectedHosts], RejectedHosts]) -> None:
        for _ in range(_TRIES):
            stored = await self._etcd.get(REJECTED_HOSTS)
            known = decode_rejected_hosts(stored.value) if stored else ()
            changed = change(known)
            if changed == known:
                return
            guard = unchanged(REJECTED_HOSTS, stored.revision if stored else 0)
            put = Put(REJECTED_HOSTS, encode(changed))
            if (await self._etcd.transact([guard], [put])).succeeded:
                await self._catalogue.refresh_rejected_hosts()
                return
        raise Unavailable("others are rejecting hosts at the same time; try again")

    # Hosts that join by themselves

    async def run(self) -> None:
        """Have hosts join as they settle, until cancelled."""
        if self.mode != "accept":
            await asyncio.Event().wait()
        while True:
            self._woken.clear()
            try:
                due = await self._accept_settled()
            except StoreError as error:
                _log.warning("hosts that were heard cannot join yet: %s", error)
                due = _PAUSE
            try:
                async with asyncio.timeout(due):
                    await self._woken.wait()
                await asyncio.sleep(_BATCH)
            except TimeoutError:
                continue  # a host has settled, or etcd may answer again

    async def _accept_settled(self) -> float | None:
        """Have those join that have settled; seconds until the next one has, None if none waits."""
        now, rejected = self._clock.monotonic(), self._rejected
        fitting = {
            _place(one): one
            for one in self.proposals()
            if one.problem is None and one.doubt is None and one.host.mac not in rejected
        }
        self._first = {place: self._first.get(place, now) for place in fitting}
        doc, revision = self._catalogue.network_doc, self._catalogue.network_revision
        if doc is None or not self._siblings.is_first:
            return None
        ends = {place: first + self._accept_after for place, first in self._first.items()}
        settled = [fitting[place] for place, end in ends.items() if end <= now]
        await self._store_accepted(doc, revision, settled)
        return min((end - now for end in ends.values() if end > now), default=None)

    async def _store_accepted(
        self, doc: NetworkDoc, revision: int, settled: list[Proposal]
    ) -> None:
        try:
            changed = with_accepted(doc, settled)
        except OutOfGroups as error:
            _log.warning("hosts that were heard cannot join: %s", error)
            return
        if changed == doc:
            return
        before = {host.id for host in doc.hosts}
        joined = [host for host in changed.hosts if host.id not in before]
        guard = unchanged(NETWORK, revision)
        result = await self._etcd.transact([guard], [Put(NETWORK, encode(changed))])
        if result.succeeded:
            shown = ", ".join(f"{host.id} at {host.switch}:{host.port}" for host in joined[:10])
            _log.warning("%d hosts join: %s%s", len(joined), shown, ", …" * (len(joined) > 10))
        await self._catalogue.refresh_network()

    def _forget_known(self) -> None:
        self._known = None
        self._rejected = frozenset(self._catalogue.rejected_hosts)
        self._woken.set()
        self.changed.emit()


def _place(one: Proposal) -> _Place:
    return one.host.id, one.host.switch, one.host.port


def _id(mac: str) -> str:
    return f"host-{mac.lower().replace(':', '')}"
