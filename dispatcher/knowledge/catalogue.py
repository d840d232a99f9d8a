"""What the dispatcher knows of spaces, network and owners, kept up to date from the store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from configurators.state.network import Network
from configurators.state.spaces import Spaces, SpaceView
from configurators.store.documents import Wires, decode_network, decode_space, decode_wires
from configurators.store.etcd.client import Compare, Etcd, none_newer, unchanged
from configurators.store.keys import (
    LOCKS,
    NETWORK,
    OWNERS,
    SPACES,
    WIRES,
    PartitionName,
    owners_of_space,
)
from configurators.store.locks import LockTable
from configurators.store.mirror import Mirror
from configurators.store.model import NetworkDoc, SpaceDoc
from dispatcher.errors import Unavailable
from dispatcher.requests.routing import Routing
from dzflow.address import PREFIX

_log = logging.getLogger(__name__)


class Catalogue:
    """Spaces, network and owners. Functions in `on_…` are called after each change.

    In mode `sea`, who has locked a partition is its owner; one that nobody has locked is "".
    """

    def __init__(self, etcd: Etcd, shared: bool = False) -> None:
        self._etcd = etcd
        self.shared = shared
        self._locks = LockTable()
        self.spaces = Spaces()
        self.routing = Routing()
        self.network_doc: NetworkDoc | None = None
        self.network_revision = 0
        self.owners: dict[str, tuple[str, int]] = {}  # configurator and epoch of each partition
        self.wires: dict[str, tuple[str, int]] = {}
        self.on_space: list[Callable[[str], None]] = []
        self.on_network: list[Callable[[], None]] = []
        self.on_owner: list[Callable[[str, int | None], None]] = []
        self._network: Network | None = None
        self._revisions: dict[str, int] = {}  # of spaces
        self._newest_owner: dict[int, int] = {}  # the highest epoch by number of space
        self._spaces = Mirror(etcd, SPACES, decode_space, self._take_space)
        self._owners = (
            Mirror(etcd, LOCKS, bytes.decode, self._take_lock)
            if shared
            else Mirror(etcd, OWNERS, bytes.decode, self._take_owner)
        )
        self._network_key = Mirror(etcd, NETWORK, decode_network, self._take_network)
        self._mirrors: list[Mirror[Any]] = [
            self._network_key,
            Mirror(etcd, WIRES, decode_wires, self._take_wires),
            self._spaces,
            self._owners,
        ]

    async def start(self) -> None:
        """Read everything, and keep it up to date."""
        for mirror in self._mirrors:
            await mirror.start()

    async def stop(self) -> None:
        """Keep nothing up to date any more."""
        await asyncio.gather(*(mirror.stop() for mirror in self._mirrors))

    def tasks(self) -> list["asyncio.Task[None]"]:
        """What goes on in the background, and never ends by itself."""
        return [task for mirror in self._mirrors for task in mirror.tasks()]

    async def refresh(self, space: SpaceView) -> None:
        """Take up at once what changed about a space."""
        await self._spaces.refresh(space.name)
        if not self.shared:
            await self._owners.refresh(owners_of_space(space.number)[len(OWNERS) :])

    async def refresh_spaces(self) -> None:
        """Take up at once what changed about any space."""
        await self._spaces.refresh()

    async def refresh_network(self) -> None:
        """Take up at once what changed about the network."""
        await self._network_key.refresh()

    # Reading

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

    def epoch(self, partition: str) -> int | None:
        """The epoch of a partition's owner, None if it has none."""
        owner = self.owners.get(partition)
        return owner[1] if owner else None

    def space_revision(self, space: SpaceView) -> int:
        """The revision of the document that a view was made from."""
        return self._revisions.get(space.name, 0)

    def guards(self, space: SpaceView) -> tuple[Compare, ...]:
        """What must hold for what is known of a space to be still true: its document, owners.

        In mode `sea` owners do not matter: what each has done is in the partition's journal.
        """
        document = unchanged(SPACES + space.name, self.space_revision(space))
        if self.shared:
            return (document,)
        newest = self._newest_owner.get(space.number, 0)
        return document, none_newer(owners_of_space(space.number), newest)

    # Keeping up to date

    _hosts: frozenset[str] = frozenset()

    def _take_space(self, name: str, value: SpaceDoc | None, revision: int) -> None:
        if value is None:
            self.spaces.drop(name)
            self._revisions.pop(name, None)
        else:
            self.spaces.put(value)
            self._revisions[name] = revision
        if self.shared:
            self._note_partitions()
        for tell in self.on_space:
            tell(name)

    def _take_owner(self, partition: str, value: str | None, revision: int) -> None:
        number = PartitionName.parse(partition).space
        if value is None:
            self.owners.pop(partition, None)
        else:
            self.owners[partition] = value, revision
            self._newest_owner[number] = max(self._newest_owner.get(number, 0), revision)
        epoch = None if value is None else revision
        for tell in self.on_owner:
            tell(partition, epoch)

    def _take_lock(self, key: str, value: str | None, revision: int) -> None:
        partition = self._locks.set(key, value, revision)
        if partition in self.owners:
            self._note_holder(partition)

    def _note_partitions(self) -> None:
        """Know the partitions of all spaces, also those that nobody has locked."""
        names = {name for space in self.spaces for name in space.partitions()}
        for name in names - self.owners.keys():
            self._note_holder(name)
        for name in self.owners.keys() - names:
            del self.owners[name]
            for tell in self.on_owner:
                tell(name, None)

    def _note_holder(self, partition: str) -> None:
        holder = self._locks.holder(partition)
        owner = (holder.who, holder.epoch) if holder else ("", 0)
        if self.owners.get(partition) != owner:
            self.owners[partition] = owner
            for tell in self.on_owner:
                tell(partition, owner[1])

    def _take_network(self, key: str, value: NetworkDoc | None, revision: int) -> None:
        if key or value is None:
            return
        self.network_doc = value
        self.network_revision = revision
        self.spaces.prefix = self.network_doc.pipeline.prefix
        self._network = None
        self._hosts = frozenset(host.id for host in self.network_doc.hosts)
        for tell in self.on_network:
            tell()

    def _take_wires(self, key: str, value: Wires | None, revision: int) -> None:  # noqa: ARG002
        if not key:
            self.wires = value or {}
