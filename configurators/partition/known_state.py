"""The network and the spaces as a configurator knows them at the moment."""

import asyncio

from configurators.state.network import Network
from configurators.state.spaces import LoadedVersion, Spaces
from configurators.store.keys import PartitionName


class KnownState:
    """The network with its revision, and all spaces; the followers of etcd keep it up to date."""

    def __init__(self) -> None:
        self.network: Network | None = None
        self.revision = 0  # of the network
        self.spaces = Spaces()
        self.spaces_read = False  # whether all spaces were read at least once
        self.spaces_revision = 0  # of the last change of a space
        self._changed = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether network and spaces are known, so that partitions can be taken over."""
        return self.network is not None and self.spaces_read

    def spaces_changed(self) -> None:
        """Wake all that wait for a change of the spaces."""
        self._wake()

    def go_over(self, network: Network, revision: int) -> None:
        """Know a newer network, and wake all that wait for it."""
        self.network, self.revision = network, revision
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_network(self, revision: int) -> None:
        """Wait until the network of a revision, or a newer one, is known."""
        while self.revision < revision:
            await self._changed.wait()

    async def wait_until_settled(self, partition: str) -> None:
        """Wait until switches have the entries of all partitions that came with this one."""
        while self.spaces.cutting(partition):
            await self._changed.wait()

    def view(self, partition: str) -> LoadedVersion | None:
        """The version of the space that a partition belongs to; None if there is none."""
        try:
            name = PartitionName.parse(partition)
        except ValueError:
            return None  # a key in etcd that dzflow has not written
        view = self.spaces.version(name)
        return view if view and view.has(name.leaf) else None
