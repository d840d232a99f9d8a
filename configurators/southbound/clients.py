"""The way from a configurator to the switches: streams to all southbound processes.

Each switch is held by one of them. A southbound process is used after the fence was raised there
for all partitions of ours, a switch after it was declared there what they should have on it. While
one still holds a switch, the next one is not told: it would bring back what was, when it has it.

A switch that is lost is not waited for: what is for it counts as done, and when it is back, it is
declared anew what it should have.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from configurators.store.etcd.client import Etcd
from configurators.store.keys import SOUTHBOUND
from configurators.streams.messages import (
    Applied,
    Apply,
    Declare,
    FromSouthbound,
    Holds,
    Raised,
    RaiseEpochs,
)
from configurators.streams.packing import pack_entries, pack_ops
from configurators.streams.peers import Peers
from configurators.streams.stream import RemoteError, Stream, StreamClosed, TooLarge
from sdn.fence import StaleEpoch
from sdn.flows import Batch, FlowEntry
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined

log = logging.getLogger(__name__)

ANSWER = 600.0  # seconds; slow switches take long, and the southbound process has limits of its own
DECLARED_AT_ONCE = 8 << 20  # bytes in one message
RETRY = 0.5


class Owned(Protocol):
    """A partition of ours."""

    name: str
    epoch: int

    def declaration(self, switches: Collection[str]) -> dict[str, list[FlowEntry]]:
        """What these switches should hold of it."""

    def say_why(self, reason: str | None) -> None:
        """Show why it waits."""


class Holders:
    """All southbound processes, by what they hold; use as an async context manager.

    `owned` gives all partitions of ours whose entries are known, `epochs` those of all that are
    ours; `stale` is told of partitions that somebody else owns by now.
    """

    def __init__(
        self,
        etcd: Etcd,
        token: bytes,
        name: str,
        owned: Callable[[], Iterable[Owned]],
        epochs: Callable[[], Mapping[str, int]],
        stale: Callable[[str, str], None],
    ) -> None:
        self._owned = owned
        self._epochs = epochs
        self._stale = stale
        self._known: dict[Stream, _Southbound] = {}
        self._holding: dict[str, _Southbound] = {}  # who says so, of several the first
        self._by_switch: dict[str, _Southbound] = {}  # those that can be used
        self._lost: frozenset[str] = frozenset()
        self._behind: set[str] = set()  # switches that were left out while they were lost
        self._telling: set[str] = set()  # those of them that are being declared anew
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers = Peers(
            etcd,
            SOUTHBOUND,
            token,
            self._hear,
            FromSouthbound,
            self._opened,
            self._closed,
            name=name,
            on_change=self._arrange,
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.__aexit__(kind, error, at)

    # What partitions use

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if somebody else owns it."""
        outcomes: dict[str, Outcome] = {}
        groups: dict[_Southbound, dict[str, bytes]] = {}
        for switch, ops in batch.items():
            holder = self._by_switch.get(switch)
            if holder is None:
                outcomes[switch] = Undefined(f"switch {switch}: {self._why(switch)}")
            else:
                groups.setdefault(holder, {})[switch] = pack_ops(ops)
        parts = [
            self._apply(holder, Apply(partition, epoch, packed))
            for holder, packed in groups.items()
        ]
        # Mostly there is one southbound process, and a task for it costs more than it is worth.
        answers = [await parts[0]] if len(parts) == 1 else await asyncio.gather(*parts)
        for answer in answers:
            outcomes |= answer
        if self._lost:
            for switch, outcome in outcomes.items():
                if switch in self._lost and isinstance(outcome, Undefined):
                    self._behind.add(switch)
                    outcomes[switch] = Acknowledged()
        return outcomes

    async def usable(self, switches: Collection[str], patience: float) -> None:
        """Return when one of these can be used or is given up, or after so many seconds."""
        try:
            async with asyncio.timeout(patience):
                while not any(s in self._by_switch or s in self._lost for s in switches):
                    await self._changed.wait()
        except TimeoutError:
            return

    # What the process uses

    def lose(self, switches: Iterable[str]) -> None:
        """Just these switches are lost from now on."""
        self._lost = frozenset(switches)
        self._arrange()

    async def until_back(self, switches: Collection[str]) -> None:
        """Wait until these switches hold what they should, except those that are lost (again)."""
        while not all(s in self._by_switch or s in self._lost for s in switches):
            await self._changed.wait()

    async def raise_epochs(self, epochs: Mapping[str, int]) -> set[str]:
        """Raise the fence at all southbound processes that are alive.

        One that cannot be reached is waited for, until it can, or is no longer registered. Returns
        the partitions that have to be declared, because that was not done at all of them.
        """
        raised: set[Stream] = set()
        undeclared: set[str] = set()
        while True:
            waiting = [s for s in self._known.values() if s.stream not in raised]
            if waiting:
                done = await asyncio.gather(*(self._raise(s, epochs) for s in waiting))
                for southbound, answer in zip(waiting, done, strict=True):
                    if answer:
                        raised.add(southbound.stream)
                        undeclared.update(answer.undeclared)
                continue
            if self._peers.processes.keys() <= {s.name for s in self._known.values()}:
                return undeclared
            await self._changed.wait()

    async def declare(self, partitions: Collection[Owned]) -> None:
        """Declare partitions that are new at all southbound processes that know of us."""
        known = [southbound for southbound in self._known.values() if southbound.raised]
        await asyncio.gather(*(self._declare_new(southbound, partitions) for southbound in known))

    async def until_network(self, revision: int) -> None:
        """Wait until all southbound processes have taken up a network."""
        while not all(self._has_network(name, revision) for name in self._peers.processes):
            await self._changed.wait()

    def not_reached(self) -> str:
        """Why the fence is perhaps not raised everywhere."""
        names = self._peers.processes.keys() - {s.name for s in self._known.values()}
        if names:
            return f"southbound processes are registered, but not reached: {_listed(names)}"
        return "a southbound process does not answer yet"

    def not_taken_up(self, revision: int) -> str:
        """Why a network cannot be taken up yet."""
        names = {n for n in self._peers.processes if not self._has_network(n, revision)}
        return f"southbound processes have not taken up the network: {_listed(names)}"

    async def until_used(self) -> None:
        """Wait until all southbound processes that are registered are used."""
        while not self.all_used:
            await self._changed.wait()

    @property
    def all_told(self) -> bool:
        """Whether no switch was left out that has not been declared anew since."""
        return not self._behind and not self._telling

    @property
    def all_used(self) -> bool:
        """Whether all southbound processes that are registered are used."""
        used = {s.name for s in self._known.values() if s.used}
        return self._peers.processes.keys() <= used

    # Streams

    def _hear(self, stream: Stream, message: Any) -> None:
        southbound = self._known.get(stream)
        if southbound and isinstance(message, Holds):
            southbound.holds = message
            southbound.heard.set()
            self._arrange()

    def _opened(self, name: str, stream: Stream) -> None:
        self._known[stream] = southbound = _Southbound(name, stream)
        task = asyncio.get_running_loop().create_task(self._introduce(southbound))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(southbound, task))
        self._arrange()

    def _closed(self, _: str, stream: Stream) -> None:
        southbound = self._known.pop(stream, None)
        if southbound:
            southbound.heard.set()
        self._arrange()

    def _done(self, southbound: "_Southbound", task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("southbound process %s cannot be used", southbound.name, exc_info=error)
            southbound.stream.close(f"it cannot be used: {error}")  # it is dialled again

    async def _introduce(self, southbound: "_Southbound") -> None:
        """Have a southbound process know what is ours, also on switches that it gets later."""
        if not await self._raise(southbound, self._epochs()):
            return
        southbound.raised = True
        while southbound.stream in self._known:
            southbound.heard.clear()
            if southbound.holds and not await self._declare_more(southbound):
                return
            self._arrange()
            await southbound.heard.wait()

    async def _declare_more(self, southbound: "_Southbound") -> bool:
        """Declare all of ours for switches that a southbound process has got; False if it is gone.

        One that it lost and has again counts as new: it may have been elsewhere in between.
        """
        while more := self._wanted(southbound) - southbound.declared:
            async with southbound.declaring:
                if not await self._tell_anew(southbound, more):
                    return False
                southbound.declared |= more & self._wanted(southbound)
        southbound.used = True
        return True

    async def _tell_anew(self, southbound: "_Southbound", switches: set[str]) -> bool:
        """Declare all of ours for some switches, also what they were left out of."""
        behind = self._behind & switches
        self._behind -= behind  # whatever is left out from now on is noted anew
        self._telling |= behind
        done = False
        try:
            done = await self._declare(southbound, list(self._owned()), switches)
        finally:
            self._telling -= behind
            if not done:
                self._behind |= behind
        return done

    async def _declare_new(self, southbound: "_Southbound", partitions: Collection[Owned]) -> None:
        async with southbound.declaring:
            await self._declare(southbound, partitions, self._wanted(southbound))

    async def _raise(self, southbound: "_Southbound", epochs: Mapping[str, int]) -> Raised | None:
        """Raise the fence at a southbound process; None if it is gone."""
        answer = await self._ask(southbound, RaiseEpochs(dict(epochs)))
        if not isinstance(answer, Raised):
            return None
        ours = self._epochs()
        for partition, reason in answer.stale.items():
            if ours.get(partition) == epochs[partition]:  # and not given to us anew meanwhile
                self._stale(partition, reason)
        return answer

    async def _declare(
        self, southbound: "_Southbound", partitions: Collection[Owned], switches: Collection[str]
    ) -> bool:
        """Declare partitions to a southbound process, for some switches; False if it is gone."""
        told: dict[str, list[str]] = {}
        for message in _declarations(partitions, switches):
            for name, entries in message.entries.items():
                for switch, packed in entries.items():
                    if packed:
                        told.setdefault(switch, []).append(name)
            answer = await self._ask(southbound, message)
            if not isinstance(answer, Applied):
                return False
            if answer.stale:
                # Which of them are over, the fence tells; the others are declared again.
                log.warning("southbound process %s: %s", southbound.name, answer.stale)
                if not await self._raise(southbound, message.epochs):
                    return False
                ours = self._epochs()
                left = [p for p in partitions if ours.get(p.name) == p.epoch]
                if len(left) == len(partitions):
                    southbound.stream.close(f"it did not answer as it should: {answer.stale}")
                    return False
                return await self._declare(southbound, left, switches)
            for switch, outcome in answer.outcomes.items():
                if isinstance(outcome, Failed):
                    reason = f"switch {switch} does not take what it should hold: {outcome}"
                    log.error("%s", reason)
                    for partition in partitions:
                        if partition.name in told.get(switch, ()):
                            partition.say_why(reason)
        return True

    async def _apply(self, southbound: "_Southbound", message: Apply) -> dict[str, Outcome]:
        answer = await self._ask(southbound, message)
        if not isinstance(answer, Applied):
            reason = f"southbound process {southbound.name}: {southbound.stream.reason}"
            return {switch: Undefined(f"switch {switch}: {reason}") for switch in message.batch}
        if answer.stale:
            raise StaleEpoch(answer.stale)
        undefined = {s for s, o in answer.outcomes.items() if isinstance(o, Undefined)}
        if undefined & southbound.declared:
            # Perhaps it has forgotten what is ours there: it is told anew, and not used before.
            southbound.declared -= undefined
            southbound.heard.set()
            self._arrange()
        return answer.outcomes

    async def _ask(self, southbound: "_Southbound", message: Any) -> Any | None:
        """The answer; None if the stream is over, as it is when nobody knows what was done."""
        try:
            return await southbound.stream.ask(message, ANSWER)
        except StreamClosed:
            return None
        except (RemoteError, TimeoutError, TooLarge) as error:
            # When it is back, everything is declared anew.
            log.error("southbound process %s: %s", southbound.name, error or "no answer in time")
            southbound.stream.close(f"it did not answer as it should: {error}")
            await asyncio.sleep(RETRY)
            return None

    # Who holds what

    def _arrange(self) -> None:
        """Find out anew who holds which switch, and tell who waits for a change."""
        self._find_holders()
        self._by_switch = {}
        for southbound in self._known.values():
            southbound.declared &= self._wanted(southbound)
            if southbound.holds and (back := self._behind.intersection(southbound.holds.switches)):
                southbound.declared -= back
                southbound.heard.set()
            if southbound.used and southbound.holds:
                for switch in southbound.declared.intersection(southbound.holds.switches):
                    self._by_switch[switch] = southbound
        self._changed.set()
        self._changed = asyncio.Event()

    def _find_holders(self) -> None:
        before, self._holding = self._holding, {}
        for southbound in self._known.values():
            for switch in southbound.holds.switches if southbound.holds else ():
                if before.get(switch) is southbound or switch not in self._holding:
                    self._holding[switch] = southbound
        if self._holding != before:
            for southbound in self._known.values():
                southbound.heard.set()  # perhaps it is time to declare what was another's

    def _wanted(self, southbound: "_Southbound") -> set[str]:
        """The switches that are declared to a southbound process: no other one holds them.

        If two believe to hold one, whoever is wrong finds out when it compares the switch.
        """
        responsible = southbound.responsible()
        return {s for s in responsible if self._holding.get(s, southbound) is southbound}

    def _why(self, switch: str) -> str:
        for southbound in self._known.values():
            if southbound.holds and switch in southbound.holds.down:
                return southbound.holds.down[switch]
            if southbound.holds and switch in southbound.holds.switches:
                return f"southbound process {southbound.name} is being told what it should hold"
        return "no southbound process holds it"

    def _has_network(self, name: str, revision: int) -> bool:
        return any(
            s.name == name and s.holds and s.holds.network >= revision for s in self._known.values()
        )


class _Southbound:
    """A southbound process that we have a stream to."""

    def __init__(self, name: str, stream: Stream) -> None:
        self.name = name
        self.stream = stream
        self.holds: Holds | None = None
        self.heard = asyncio.Event()  # something new, or that the stream is over
        self.raised = False
        self.used = False
        self.declared: set[str] = set()  # switches for which it knows what is ours
        self.declaring = asyncio.Lock()

    def responsible(self) -> set[str]:
        """The switches that it holds, or would if they were there."""
        return {*self.holds.switches, *self.holds.down} if self.holds else set()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _declarations(partitions: Iterable[Owned], switches: Collection[str]) -> Iterable[Declare]:
    """Messages that declare partitions, none of them too large; the last one has all compared."""
    epochs: dict[str, int] = {}
    entries: dict[str, dict[str, bytes]] = {}
    size = 0
    names = sorted(switches)
    for partition in partitions:
        if size > DECLARED_AT_ONCE:
            yield Declare(epochs, entries, check=False, switches=names)
            epochs, entries, size = {}, {}, 0
        epochs[partition.name] = partition.epoch
        found = partition.declaration(switches)
        entries[partition.name] = packed = {s: pack_entries(e) for s, e in found.items()}
        size += sum(map(len, packed.values()))
    if epochs and names:
        yield Declare(epochs, entries, check=True, switches=names)
