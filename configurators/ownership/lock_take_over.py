"""Makes a configurator that has locked partitions their owner (mode `sea`).

The order makes it safe. First raise the epoch at all southbound processes: from then on no former
owner can change a switch. Then know the network as these processes do: in an older one, a number of
a table may be that of another leg. Then read what former owners have done. Then declare to the
southbound processes what switches should hold, and wait until they do, unless the former owner has
left the partition in order.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from configurators.ownership.coalesce import Coalescer
from configurators.ownership.comparison import when_compared
from configurators.ownership.held_partition import HeldPartition
from configurators.ownership.log_commits import LogCommits
from configurators.ownership.partition_log import CleanMark, LogOptions, PartitionLog
from configurators.partition.known_state import KnownState
from configurators.partition.replica import build, catch_up
from configurators.partition.worker import PartitionWorker
from configurators.southbound.clients import SouthboundClients
from configurators.state.loading import Loaded, read
from configurators.store.etcd.client import Etcd
from configurators.store.locks import Lock

_Declaration = tuple[PartitionWorker, Collection[str] | None]
"""A partition to be declared, and the switches for which (None: all)."""


class LockTakeOver:
    """Brings locked partitions to the state in which former owners have left them.

    Partitions that are taken over at the same time share messages and reads. `create` makes the
    worker of a partition under an epoch.
    """

    def __init__(
        self,
        etcd: Etcd,
        known: KnownState,
        southbound: SouthboundClients,
        create: Callable[[str, int], PartitionWorker],
        log_options: LogOptions,
    ) -> None:
        self._etcd = etcd
        self._known = known
        self._southbound = southbound
        self._create = create
        self._log_options = log_options
        self._commits = LogCommits(etcd)
        self._raises = Coalescer(self._raise_epochs)
        self._reads = Coalescer(self._read_records)
        self._declares = Coalescer(self._declare)

    def open_log(self, lock: Lock, position: str = "") -> PartitionLog:
        """The log of a locked partition, to be read behind a position."""
        return PartitionLog(self._etcd, self._commits, lock, self._log_options, position)

    async def raise_and_load(self, held: HeldPartition, is_replica: bool) -> None:
        """Raise the epoch everywhere, then bring the worker up to date.

        A replica catches up from the log. If the log does not reach back far enough, or the process
        has no replica, the worker is built from the records and the log.
        """
        lock, name = held.lock, held.lock.partition
        await self._raises.call(name, lock.epoch)
        await self._known.wait_for_network(self._southbound.newest_network())
        held.worker.follow_networks()
        found = await held.log.read()
        if is_replica and not (found.gap and self._known.view(name)):
            catch_up(held.worker, found.tasks)
            return
        if is_replica:
            held.start_over(self._create(name, lock.epoch), self.open_log(lock))
            found = await held.log.read()
        build(held.worker, await self._reads.call(name, None), found.tasks)

    async def declare_unless_in_order(self, held: HeldPartition) -> None:
        """Declare what switches should hold, unless all southbound processes know that already.

        They know it if the former owner left the partition in order, for the same network, and no
        southbound process came while it had no owner. Processes that come from now on are told by
        this owner. If the partition was not left in order, return when all switches hold that. One
        that is new in its map works only when the map has settled, so when they hold that anyway.
        """
        lock, worker = held.lock, held.worker
        mark = CleanMark.decode(lock.mark) if lock.mark is not None else None
        in_order = mark is not None and (
            (mark.network, mark.map_number) == (worker.network, held.map_number)
        )
        if in_order and await self._raises.call(worker.name, lock.epoch):
            return
        compared = await self._declare_for([worker], None)
        if not (in_order or self._known.spaces.cutting(worker.name)):
            # The records do not say enough to wait less often: neither a replica nor a network
            # that the former owner was about to push leaves a trace in them.
            async for _ in when_compared(
                [worker],
                compared,
                self._known,
                self._southbound,
                self._declare_for,
                lambda worker: self._known.view(worker.name) is not None,
            ):
                pass

    async def close(self) -> None:
        """Cancel what is in progress."""
        await asyncio.gather(
            self._raises.close(),
            self._reads.close(),
            self._declares.close(),
            self._commits.close(),
            return_exceptions=True,
        )

    async def _raise_epochs(self, epochs: Mapping[str, int]) -> Mapping[str, bool]:
        """Raise epochs; whether all southbound processes know what switches should hold."""
        # Owners of partitions that the last change of the map has removed are fenced by that.
        await self._southbound.wait_for_spaces(self._known.spaces_revision)
        undeclared = await self._southbound.raise_epochs(epochs)
        return {name: name not in undeclared for name in epochs}

    async def _read_records(self, names: Mapping[str, None]) -> Mapping[str, list[Loaded]]:
        views = {name: view for name in names if (view := self._known.view(name))}
        # Of operations in progress the log has what was carried out, so settled state is enough.
        found = await read(self._etcd, views, settled=True)
        return {name: [] for name in names} | found

    async def _declare_for(
        self, workers: Collection[PartitionWorker], switches: Collection[str] | None
    ) -> set[str]:
        """Declare partitions for these switches (None: all); the result were compared."""
        calls = (self._declares.call(each.name, (each, switches)) for each in workers)
        return set().union(*await asyncio.gather(*calls))

    async def _declare(self, asked: Mapping[str, _Declaration]) -> Mapping[str, set[str]]:
        workers = [worker for worker, _ in asked.values()]
        switches: set[str] | None = set()
        for _, some in asked.values():
            switches = None if switches is None or some is None else switches.union(some)
        compared = await self._southbound.declare(workers, switches)
        return dict.fromkeys(asked, compared)
