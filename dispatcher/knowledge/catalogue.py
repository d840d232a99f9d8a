"""Spaces, network and owners of partitions, kept up to date from etcd."""

import asyncio
from typing import Any

from configurators.state.network import Network, read_network
from configurators.state.spaces import LoadedSpace, Spaces
from configurators.store.documents import (
    BadDocument,
    RejectedHosts,
    Wires,
    decode_move,
    decode_plan,
    decode_rejected_hosts,
    decode_space,
    decode_wires,
)
from configurators.store.etcd.client import Compare, Etcd, unchanged
from configurators.store.keys import MOVES, NETWORK, PLANS, REJECTED_HOSTS, SPACES, WIRES
from configurators.store.mirror import Mirror
from configurators.store.model import MapPlan, Move, NetworkDoc, SpaceDoc
from dispatcher.errors import Unavailable
from dispatcher.knowledge.owners import AssignedOwners, LockedOwners, OwnerChanged, Owners
from dispatcher.knowledge.signals import Signal
from dzflow.address import PREFIX


class Catalogue:
    """Spaces, network and owners; owners are the holders of locks if partitions are `locked`."""

    def __init__(self, etcd: Etcd, locked: bool = False) -> None:
        self.spaces = Spaces()
        self.space_docs: tuple[SpaceDoc, ...] = ()
        """The documents of all spaces, for other threads, which must not iterate over `spaces`:
        it may change meanwhile. This is replaced as a whole, and its documents are immutable."""
        self.network_doc: NetworkDoc | None = None
        self.network_revision = 0
        self.wires: dict[str, tuple[str, int]] = {}
        self.rejected_hosts: RejectedHosts = ()
        self.rejected_hosts_changed: Signal[()] = Signal()
        self.space_changed: Signal[str] = Signal()
        """Emitted with the name of a space that was made, changed or deleted."""
        self.network_changed: Signal[()] = Signal()
        self.owner_changed: OwnerChanged = Signal()
        self.moves: dict[str, tuple[Move, int]] = {}  # by partition, with the document's revision
        self.move_changed: Signal[str] = Signal()
        """Emitted with the partition whose move has begun, come further, or ended."""
        self.plans: dict[int, tuple[MapPlan, int]] = {}  # by number of space, with the revision
        self.plan_changed: Signal[int] = Signal()
        """Emitted with the number of a space whose plan has begun, come further, or ended."""
        self._network: Network | None = None
        self._revisions: dict[str, int] = {}  # of spaces
        self._guards: dict[str, tuple[Compare, ...]] = {}  # by space, until something changes
        self.owner_changed.subscribe(lambda *_: self._guards.clear())
        self._spaces = Mirror(etcd, SPACES, decode_space, self._space_stored)
        self._owners: Owners = (
            LockedOwners(etcd, self.owner_changed, self.spaces)
            if locked
            else AssignedOwners(etcd, self.owner_changed)
        )
        self.owners = self._owners.by_partition  # configurator and epoch of each partition
        self._moves = Mirror(etcd, MOVES, decode_move, self._move_stored)
        self._plans = Mirror(etcd, PLANS, decode_plan, self._plan_stored)
        self._network_key = Mirror(etcd, NETWORK, read_network, self._network_stored)
        self._rejected_key = Mirror(
            etcd, REJECTED_HOSTS, decode_rejected_hosts, self._rejected_stored
        )
        self._mirrors: list[Mirror[Any]] = [
            self._network_key,
            Mirror(etcd, WIRES, decode_wires, self._wires_stored),
            self._rejected_key,
            self._spaces,
            self._owners.mirror,
            self._moves,
            self._plans,
        ]

    async def start(self) -> None:
        """Read everything, and keep it up to date."""
        for mirror in self._mirrors:
            await mirror.start()

    async def stop(self) -> None:
        """Stop keeping it up to date."""
        await asyncio.gather(*(mirror.stop() for mirror in self._mirrors))

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return [task for mirror in self._mirrors for task in mirror.tasks()]

    async def refresh(self, space: LoadedSpace) -> None:
        """Read now what has changed about a space."""
        await self._spaces.refresh(space.name)
        await self._owners.refresh(space)

    async def refresh_spaces(self) -> None:
        """Read now what has changed about any space."""
        await self._spaces.refresh()

    async def refresh_network(self) -> None:
        """Read now what has changed about the network."""
        await self._network_key.refresh()

    async def refresh_rejected_hosts(self) -> None:
        """Read now which hosts were rejected."""
        await self._rejected_key.refresh()

    async def refresh_owners(self) -> None:
        """Read now who owns the partitions of all spaces."""
        await self._spaces.refresh()
        await self._owners.mirror.refresh()

    async def refresh_moves(self, partition: str = "") -> None:
        """Read now what has changed about the moves of partitions, or one of them."""
        await self._moves.refresh(partition)

    async def refresh_plans(self) -> None:
        """Read now what has changed about the plans for partition maps."""
        await self._plans.refresh()

    # Reading

    def unusable(self) -> dict[str, str]:
        """The documents in etcd that something else than dzflow has written, with the reasons."""
        found = {SPACES + name: why for name, why in self._spaces.unusable.items()}
        return found | {NETWORK + name: why for name, why in self._network_key.unusable.items()}

    @property
    def network(self) -> Network:
        """The network; Unavailable if there is none yet."""
        if self._network is None:
            if self.network_doc is None:
                raise Unavailable("there is no network yet; no southbound process has started", 2.0)
            self._network = Network.of(self.network_doc)
        return self._network

    @property
    def prefix(self) -> int:
        """The first 16 bits of addresses."""
        return self.network_doc.pipeline.prefix if self.network_doc else PREFIX

    def knows_host(self, host: str) -> bool:
        """Whether the network has a host."""
        return host in self._hosts

    @property
    def partitions_locked(self) -> bool:
        """Whether configurators lock partitions (mode `sea`), so that nobody assigns them."""
        return self._owners.locked

    def epoch(self, partition: str) -> int | None:
        """The epoch of a partition's owner, None if it has none."""
        owner = self.owners.get(partition)
        return owner[1] if owner else None

    def holds_back(self, partition: str) -> bool:
        """Whether tasks wait because their partition is being handed over to another owner."""
        known = self.moves.get(partition)
        return (
            known is not None
            and known[0].phase == "handing over"
            and known[0].epoch == self.epoch(partition)
        )

    def space_revision(self, space: LoadedSpace) -> int:
        """The revision of the document that a view was made from."""
        return self._revisions.get(space.name, 0)

    def guards(self, space: LoadedSpace) -> tuple[Compare, ...]:
        """What must hold in etcd so that all that is known of a space is still true."""
        guards = self._guards.get(space.name)
        if guards is None:
            document = unchanged(SPACES + space.name, self.space_revision(space))
            guards = self._guards[space.name] = (document, *self._owners.guards(space))
        return guards

    # Keeping up to date

    _hosts: frozenset[str] = frozenset()

    def _space_stored(self, name: str, value: SpaceDoc | None, revision: int) -> None:
        if value is None:
            self.spaces.drop(name)
            self._revisions.pop(name, None)
        else:
            if value.name != name:
                raise BadDocument(f"it is stored as {name[:64]!r}, but called {value.name[:64]!r}")
            self.spaces.put(value)
            self._revisions[name] = revision
        self.space_docs = tuple(space.doc for space in self.spaces)
        self._guards.pop(name, None)
        self._owners.spaces_changed()
        self.space_changed.emit(name)

    def _network_stored(self, key: str, value: NetworkDoc | None, revision: int) -> None:
        if key or value is None:
            return
        self.network_doc = value
        self.network_revision = revision
        self.spaces.prefix = self.network_doc.pipeline.prefix
        self._network = None
        self._hosts = frozenset(host.id for host in self.network_doc.hosts)
        self.network_changed.emit()

    def _wires_stored(self, key: str, value: Wires | None, revision: int) -> None:  # noqa: ARG002
        if not key:
            self.wires = value or {}

    def _rejected_stored(self, key: str, value: RejectedHosts | None, revision: int) -> None:  # noqa: ARG002
        if not key:
            self.rejected_hosts = value or ()
            self.rejected_hosts_changed.emit()

    def _move_stored(self, partition: str, move: Move | None, revision: int) -> None:
        if move is None:
            self.moves.pop(partition, None)
        else:
            self.moves[partition] = move, revision
        self.move_changed.emit(partition)

    def _plan_stored(self, key: str, plan: MapPlan | None, revision: int) -> None:
        number = int(key, 16)
        if plan is None:
            self.plans.pop(number, None)
        else:
            self.plans[number] = plan, revision
        self.plan_changed.emit(number)
