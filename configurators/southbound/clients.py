"""The way from a configurator to the switches: streams to all southbound processes.

One southbound process at a time holds each switch. The configurator uses a southbound process after
it has raised the fence there for all its partitions, and a switch after it has declared there what
the partitions should have on it. While one process still holds a switch, the configurator does not
declare the switch to the next one: that one would restore an old state when it gets the switch.

No partition waits for a lost switch: operations for it count as done. When the switch is back, the
configurator declares again what it should have. Operations for a switch that was removed from the
network count as done, too, for partitions that have not taken up that network yet.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Self

from configurators.southbound.client import Epochs, OnStale, OwnedPartition, SouthboundClient
from configurators.southbound.counts import OutcomeCounts
from configurators.store.etcd.client import Etcd
from configurators.store.keys import SOUTHBOUND
from configurators.streams.listener import Connect, connect
from configurators.streams.messages import Apply, FromSouthbound, SwitchReport
from configurators.streams.packing import pack_batch
from configurators.streams.peers import Peers
from configurators.streams.stream import Stream
from configurators.tracing import Tracer
from dzflow.aio import BackgroundTasks
from sdn.outcomes import Acknowledged, Outcome, Undefined
from sdn.tables.flows import Batch


class SouthboundClients:
    """All southbound processes, by the switches they hold; use as an async context manager.

    `owned` gives the partitions of this configurator whose entries are known, `epochs` those of all
    its partitions; `stale` is called for partitions that another process owns by now. `spaces` is
    the revision of the spaces that the partitions belong to.
    """

    def __init__(
        self,
        etcd: Etcd,
        token: bytes,
        name: str,
        owned: Callable[[], Iterable[OwnedPartition]],
        epochs: Epochs,
        stale: OnStale,
        spaces: Callable[[], int],
        *,
        connect: Connect = connect,
        tracer: Tracer | None = None,
    ) -> None:
        self.outcomes = OutcomeCounts()  # since the start
        self._owned = owned
        self._epochs = epochs
        self._stale = stale
        self._spaces = spaces
        self._tracer = tracer
        self._clients: dict[Stream, SouthboundClient] = {}
        self._holders: dict[str, SouthboundClient] = {}  # by switch; of several the first
        self._usable: dict[str, SouthboundClient] = {}  # by switch: where operations are sent
        self._there: frozenset[str] | None = None  # the newest network's switches, once known
        self._lost: frozenset[str] = frozenset()
        self._behind: set[str] = set()  # switches that have missed operations while lost
        self._catching_up: set[str] = set()  # those of them that are being declared again
        self._changed = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._peers = Peers(
            etcd,
            SOUTHBOUND,
            token,
            self._receive,
            FromSouthbound,
            self._opened,
            self._closed,
            name=name,
            on_change=self._update,
            connect=connect,
        )

    async def __aenter__(self) -> Self:
        await self._peers.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._tasks.cancel()
        await self._peers.__aexit__(kind, error, at)

    # For partitions

    async def apply(
        self, partition: str, epoch: int, batch: Batch, trace: bytes = b""
    ) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if another process owns it."""
        outcomes: dict[str, Outcome] = {}
        groups: dict[SouthboundClient, Batch] = {}
        for switch, ops in batch.items():
            client = self._usable.get(switch)
            if client is None:
                outcomes[switch] = Undefined(f"switch {switch}: {self._why_unusable(switch)}")
            else:
                groups.setdefault(client, {})[switch] = ops
        parts = [
            self._apply(client, Apply(partition, epoch, pack_batch(group), trace))
            for client, group in groups.items()
        ]
        # Mostly there is one southbound process, and a task for it costs more than it is worth.
        answers = [await parts[0]] if len(parts) == 1 else await asyncio.gather(*parts)
        for answer in answers:
            outcomes |= answer
        for outcome in outcomes.values():
            self.outcomes.count(outcome)
        for switch in [s for s, outcome in outcomes.items() if isinstance(outcome, Undefined)]:
            if self._is_left_out(switch):
                outcomes[switch] = Acknowledged()
                if switch in self._lost:
                    self._behind.add(switch)
        return outcomes

    async def usable(self, switches: Collection[str], patience: float) -> None:
        """Return when one of these can be used or is left out, or after so many seconds."""
        try:
            async with asyncio.timeout(patience):
                while not any(s in self._usable or self._is_left_out(s) for s in switches):
                    await self._changed.wait()
        except TimeoutError:
            return

    # For the configurator

    def set_switches(self, switches: Iterable[str], lost: Iterable[str]) -> None:
        """Know which switches the newest network has, and which of them are lost.

        Others that partitions still have entries on were removed from it.
        """
        self._there, self._lost = frozenset(switches), frozenset(lost)
        self._behind &= self._there
        self._update()

    async def wait_until_back(self, switches: Collection[str]) -> None:
        """Wait until these switches hold what they should, except those that are left out."""
        while not all(s in self._usable or self._is_left_out(s) for s in switches):
            await self._changed.wait()

    async def raise_epochs(self, epochs: Mapping[str, int]) -> set[str]:
        """Raise the fence at all southbound processes that are alive.

        Waits for a process that cannot be reached until it can be, or is no longer registered.
        Returns the partitions that were not declared for all switches there, and have to be.
        """
        raised: set[SouthboundClient] = set()
        undeclared: set[str] = set()
        while True:
            waiting = [client for client in self._clients.values() if client not in raised]
            if waiting:
                done = await asyncio.gather(*(client.raise_epochs(epochs) for client in waiting))
                for client, answer in zip(waiting, done, strict=True):
                    if answer:
                        raised.add(client)
                        undeclared.update(answer.undeclared)
                continue
            if not self._unreached():
                return undeclared
            await self._changed.wait()

    async def declare(
        self, partitions: Collection[OwnedPartition], switches: Collection[str] | None = None
    ) -> set[str]:
        """Declare partitions at all southbound processes that have our epochs.

        They are declared for these switches (default: all). The result are those that were
        compared: they hold what they should by now, or refuse it.
        """
        fenced = [client for client in self._clients.values() if client.fenced]
        compared = await asyncio.gather(
            *(self._declare_new(client, partitions, switches) for client in fenced)
        )
        return set().union(*compared)

    def not_left_out(self, switches: Iterable[str]) -> set[str]:
        """These switches, except for those that are lost, or were removed from the network."""
        return {switch for switch in switches if not self._is_left_out(switch)}

    async def wait_for_network(self, revision: int) -> None:
        """Wait until all southbound processes have taken up a network."""
        while self._without_network(revision):
            await self._changed.wait()

    def newest_network(self) -> int:
        """The newest revision of the network that a southbound process has taken up."""
        reports = [client.report for client in self._clients.values()]
        return max((report.network for report in reports if report), default=0)

    async def wait_for_spaces(self, revision: int) -> None:
        """Wait until all southbound processes know the spaces as of a revision.

        From then on they let no owner in of a partition that has gone until then.
        """
        while self._behind_report(lambda report: report.spaces >= revision):
            await self._changed.wait()

    def why_not_fenced(self) -> str:
        """Why the fence may not be raised everywhere yet."""
        if names := self._unreached():
            return f"southbound processes are registered, but not reached: {_listed(names)}"
        return "a southbound process does not answer yet"

    def why_network_missing(self, revision: int) -> str:
        """Why a network cannot be taken up yet."""
        names = self._without_network(revision)
        return f"southbound processes have not taken up the network: {_listed(names)}"

    @property
    def all_caught_up(self) -> bool:
        """Whether no switch lacks operations that it has missed while it was lost."""
        return not self._behind and not self._catching_up

    def all_hold(self, switches: Iterable[str]) -> bool:
        """Whether these switches have what our partitions should have there, or are left out."""
        return (
            self.all_in_use
            and all(map(self._is_left_out, self._behind | self._catching_up))
            and not any(client.refusing for client in self._clients.values())
            and all(switch in self._usable or self._is_left_out(switch) for switch in switches)
        )

    @property
    def all_in_use(self) -> bool:
        """Whether all southbound processes that are registered are in use."""
        used = {client.name for client in self._clients.values() if client.in_use}
        return self._peers.processes.keys() <= used

    # Streams

    def _receive(self, stream: Stream, message: FromSouthbound) -> None:
        client = self._clients.get(stream)
        if client and isinstance(message, SwitchReport):
            client.report = message
            client.changed.set()
            self._update()

    def _opened(self, name: str, stream: Stream) -> None:
        client = SouthboundClient(name, stream, self._epochs, self._stale, self._tracer)
        self._clients[stream] = client
        self._tasks.spawn(self._use(client), f"use southbound process {name}")
        self._update()

    def _closed(self, _: str, stream: Stream) -> None:
        client = self._clients.pop(stream, None)
        if client:
            client.changed.set()
        self._update()

    async def _use(self, client: SouthboundClient) -> None:
        """Prepare a southbound process, and declare to it each switch that it gets, until it ends.

        If that fails, the stream is closed, and `Peers` connects again.
        """
        try:
            # A process that does not know our partition map yet would refuse new partitions.
            while client.report is None or client.report.spaces < self._spaces():
                client.changed.clear()
                await client.changed.wait()
                if client.stream not in self._clients:
                    return
            if not await client.raise_epochs(self._epochs()):
                return
            client.fenced = True
            while client.stream in self._clients:
                client.changed.clear()
                if client.report and not await self._declare_missing(client):
                    return
                self._update()
                await client.changed.wait()
        except Exception as error:
            client.stream.close(f"the southbound process cannot be used: {error}")
            raise

    async def _declare_missing(self, client: SouthboundClient) -> bool:
        """Declare all partitions for switches that a process has got; False if its stream ended.

        A switch that it has lost and got again counts as new: another process may have changed it.
        """
        while missing := self._wanted(client) - client.declared:
            async with client.declaring:
                if not await self._declare_all(client, missing):
                    return False
                client.declared |= missing & self._wanted(client)
        client.in_use = True
        return True

    async def _declare_all(self, client: SouthboundClient, switches: set[str]) -> bool:
        """Declare all partitions for some switches, which have then missed nothing any more."""
        behind = self._behind & switches
        self._behind -= behind  # operations that they miss from now on are noted again
        self._catching_up |= behind
        done = False
        try:
            done = await client.declare(list(self._owned()), switches) is not None
        finally:
            self._catching_up -= behind
            if not done:
                self._behind |= behind if self._there is None else behind & self._there
        return done

    async def _declare_new(
        self,
        client: SouthboundClient,
        partitions: Collection[OwnedPartition],
        switches: Collection[str] | None,
    ) -> set[str]:
        async with client.declaring:
            wanted = self._wanted(client)
            if switches is not None:
                wanted &= set(switches)
            return await client.declare(partitions, wanted) or set()

    async def _apply(self, client: SouthboundClient, message: Apply) -> dict[str, Outcome]:
        outcomes = await client.apply(message)
        undefined = {s for s, outcome in outcomes.items() if isinstance(outcome, Undefined)}
        if undefined & client.declared:
            # The process may have forgotten what our partitions should have there. The switches
            # are declared again, and not used before.
            client.declared -= undefined
            client.changed.set()
            self._update()
        return outcomes

    # Which process holds which switch

    def _update(self) -> None:
        """Compute again which process is used for which switch, and wake all that wait for it."""
        self._find_holders()
        refusing = {s for client in self._clients.values() for s in client.refusing}
        for partition in self._owned():
            partition.keep_refusals(refusing)
        self._usable = {}
        for client in self._clients.values():
            client.declared &= self._wanted(client)
            if client.report and (back := self._behind.intersection(client.report.switches)):
                client.declared -= back
                client.changed.set()
            if client.in_use and client.report:
                for switch in client.declared.intersection(client.report.switches):
                    self._usable[switch] = client
        self._changed.set()
        self._changed = asyncio.Event()

    def _find_holders(self) -> None:
        before, self._holders = self._holders, {}
        for client in self._clients.values():
            for switch in client.report.switches if client.report else ():
                if before.get(switch) is client or switch not in self._holders:
                    self._holders[switch] = client
        if self._holders != before:
            for client in self._clients.values():
                client.changed.set()  # a switch that another process held can be declared now

    def _wanted(self, client: SouthboundClient) -> set[str]:
        """The switches to declare to a southbound process: no other process holds them.

        If two processes believe to hold a switch, the wrong one notices when it compares it.
        """
        return {s for s in client.responsible() if self._holders.get(s, client) is client}

    def _is_left_out(self, switch: str) -> bool:
        """Whether nothing waits for a switch: it is lost, or was removed from the network."""
        return switch in self._lost or (self._there is not None and switch not in self._there)

    def _why_unusable(self, switch: str) -> str:
        for client in self._clients.values():
            if client.report and switch in client.report.down:
                return client.report.down[switch]
            if client.report and switch in client.report.switches:
                return f"southbound process {client.name} is being told what it should hold"
        return "no southbound process holds it"

    def _unreached(self) -> set[str]:
        reached = {client.name for client in self._clients.values()}
        return self._peers.processes.keys() - reached

    def _without_network(self, revision: int) -> set[str]:
        """The registered southbound processes that have not taken up a network."""
        return self._behind_report(lambda report: report.network >= revision)

    def _behind_report(self, caught_up: Callable[[SwitchReport], bool]) -> set[str]:
        """The registered southbound processes that have not reported something yet."""
        have = {
            client.name
            for client in self._clients.values()
            if client.report and caught_up(client.report)
        }
        return self._peers.processes.keys() - have


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
