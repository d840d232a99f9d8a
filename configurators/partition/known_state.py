"""The network and the spaces as a configurator knows them at the moment."""

from configurators.state.network import Network
from configurators.state.spaces import Spaces, VersionView
from configurators.store.keys import PartitionName


class KnownState:
    """The network with its revision, and all spaces; the followers of etcd keep it up to date."""

    def __init__(self) -> None:
        self.network: Network | None = None
        self.revision = 0  # of the network
        self.spaces = Spaces()
        self.spaces_read = False  # whether all spaces were read at least once

    @property
    def complete(self) -> bool:
        """Whether network and spaces are known, so that partitions can be taken over."""
        return self.network is not None and self.spaces_read

    def view(self, partition: str) -> VersionView | None:
        """The version of the space that a partition belongs to; None if there is none."""
        try:
            return self.spaces.version(PartitionName.parse(partition))
        except ValueError:
            return None  # a key in etcd that dzflow has not written
