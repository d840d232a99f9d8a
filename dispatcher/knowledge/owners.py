"""The owners of partitions: assigned by keys in etcd (mode `sna`), or holders of locks (`sea`)."""

from collections.abc import Sequence
from typing import Any, Protocol

from configurators.state.spaces import LoadedSpace, Spaces
from configurators.store.etcd.client import Compare, Etcd, none_newer
from configurators.store.keys import LOCKS, OWNERS, PartitionName, owners_of_space
from configurators.store.locks import LockTable
from configurators.store.mirror import Mirror
from dispatcher.knowledge.signals import Signal

OwnerChanged = Signal[str, int | None]
"""Emitted with a partition and the epoch of its new owner; None if the partition is gone."""


class Owners(Protocol):
    """The owner of each partition, kept up to date; chosen once per dispatcher by its mode."""

    by_partition: dict[str, tuple[str, int]]  # configurator and epoch
    locked: bool  # whether configurators lock partitions, so that owners change all the time
    mirror: Mirror[Any]

    async def refresh(self, space: LoadedSpace) -> None:
        """Read now who owns the partitions of a space."""

    def guards(self, space: LoadedSpace) -> Sequence[Compare]:
        """What must hold in etcd so that what former owners did is not lost."""

    def spaces_changed(self) -> None:
        """A space was made, changed or deleted."""


class AssignedOwners:
    """Each partition has a key that names its owner; the key's revision is the epoch."""

    locked = False

    def __init__(self, etcd: Etcd, changed: OwnerChanged) -> None:
        self.by_partition: dict[str, tuple[str, int]] = {}
        self.mirror = Mirror(etcd, OWNERS, bytes.decode, self._owner_stored)
        self._changed = changed
        self._newest: dict[int, int] = {}  # the highest epoch by number of space

    async def refresh(self, space: LoadedSpace) -> None:
        """Read now who owns the partitions of a space."""
        await self.mirror.refresh(owners_of_space(space.number)[len(OWNERS) :])

    def guards(self, space: LoadedSpace) -> Sequence[Compare]:
        """No partition of the space may have a newer owner, which does not know what others did."""
        newest = self._newest.get(space.number, 0)
        return (none_newer(owners_of_space(space.number), newest),)

    def spaces_changed(self) -> None:
        """Nothing: owners are stored apart from spaces."""

    def _owner_stored(self, partition: str, owner: str | None, revision: int) -> None:
        number = PartitionName.parse(partition).space
        if owner is None:
            self.by_partition.pop(partition, None)
            self._changed.emit(partition, None)
        else:
            self.by_partition[partition] = owner, revision
            self._newest[number] = max(self._newest.get(number, 0), revision)
            self._changed.emit(partition, revision)


class LockedOwners:
    """The configurator that has locked a partition owns it; the owner is "" if none has."""

    locked = True

    def __init__(self, etcd: Etcd, changed: OwnerChanged, spaces: Spaces) -> None:
        self.by_partition: dict[str, tuple[str, int]] = {}
        self.mirror = Mirror(etcd, LOCKS, bytes.decode, self._lock_stored)
        self._changed = changed
        self._spaces = spaces
        self._locks = LockTable()

    async def refresh(self, space: LoadedSpace) -> None:
        """Nothing: no write depends on who has a lock."""

    def guards(self, space: LoadedSpace) -> Sequence[Compare]:  # noqa: ARG002
        """None: what each owner has done is in the partition's log."""
        return ()

    def spaces_changed(self) -> None:
        """Know the partitions of all spaces, also those that no configurator has locked."""
        names = {name for space in self._spaces for name in space.partitions()}
        for name in names - self.by_partition.keys():
            self._note_holder(name)
        for name in self.by_partition.keys() - names:
            del self.by_partition[name]
            self._changed.emit(name, None)

    def _lock_stored(self, key: str, value: str | None, revision: int) -> None:
        partition = self._locks.set(key, value, revision)
        if partition in self.by_partition:
            self._note_holder(partition)

    def _note_holder(self, partition: str) -> None:
        holder = self._locks.holder(partition)
        owner = (holder.who, holder.epoch) if holder else ("", 0)
        if self.by_partition.get(partition) != owner:
            self.by_partition[partition] = owner
            self._changed.emit(partition, owner[1])
