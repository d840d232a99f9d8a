"""A configurator's view of one southbound process: requests to it, and what it has reported."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from configurators.streams.messages import (
    Applied,
    Apply,
    Declare,
    Raised,
    RaiseEpochs,
    SwitchReport,
)
from configurators.streams.packing import pack_entries
from configurators.streams.stream import MessageTooLarge, RemoteError, Stream, StreamClosed
from configurators.tracing import Tracer
from sdn.fence import StaleEpoch
from sdn.outcomes import Failed, Outcome, Undefined
from sdn.tables.flows import FlowEntry

log = logging.getLogger(__name__)

A = TypeVar("A", Applied, Raised)

ANSWER = 600.0  # seconds; slow switches take long, and the southbound process has its own limits
DECLARED_AT_ONCE = 8 << 20  # bytes in one message
RETRY = 0.5


class OwnedPartition(Protocol):
    """A partition that this configurator owns."""

    name: str
    epoch: int

    def declaration(self, switches: Collection[str]) -> dict[str, list[FlowEntry]]:
        """What these switches should hold of it."""

    def note_refusal(self, switch: str, reason: str) -> None:
        """Show that a switch does not take what it should hold of the partition."""

    def keep_refusals(self, switches: Collection[str]) -> None:
        """Show refusals of these switches only: the others have taken everything."""


Epochs = Callable[[], Mapping[str, int]]
"""The epochs of all partitions that this configurator owns now."""

OnStale = Callable[[str, str], None]
"""Called with a partition that another process owns by now, and the reason."""


class SouthboundClient:
    """A southbound process that this configurator has a stream to.

    `declared` are the switches for which the process knows what our partitions should have there.
    """

    def __init__(
        self,
        name: str,
        stream: Stream,
        epochs: Epochs,
        on_stale: OnStale,
        tracer: Tracer | None = None,
    ) -> None:
        self.name = name
        self.stream = stream
        self.report: SwitchReport | None = None
        self.changed = asyncio.Event()  # a report has come, or the stream has ended
        self.fenced = False  # the epochs of our partitions were raised there
        self.in_use = False  # since all its switches were declared for the first time
        self.declared: set[str] = set()
        self.declaring = asyncio.Lock()
        self._epochs = epochs
        self._on_stale = on_stale
        self._tracer = tracer

    @property
    def refusing(self) -> Mapping[str, str]:
        """The switches that refuse entries which they should hold, with the reason."""
        return self.report.refusing if self.report else {}

    def responsible(self) -> set[str]:
        """The switches that the process is responsible for, whether they are up or down."""
        return {*self.report.switches, *self.report.down} if self.report else set()

    async def raise_epochs(self, epochs: Mapping[str, int]) -> Raised | None:
        """Raise the fence for partitions; None if the stream has ended."""
        answer = await self._ask(RaiseEpochs(dict(epochs)), Raised)
        if answer:
            ours = self._epochs()
            for partition, reason in answer.stale.items():
                if ours.get(partition) == epochs[partition]:  # and not owned again meanwhile
                    self._on_stale(partition, reason)
        return answer

    async def declare(
        self, partitions: Collection[OwnedPartition], switches: Collection[str]
    ) -> set[str] | None:
        """Declare what switches should hold of partitions; None if the stream has ended.

        The result are the switches that were compared: they hold that by now, or refuse it.
        """
        if self._tracer is None:
            return await self._declare(partitions, switches)
        about = {"dzflow.partitions": len(partitions), "dzflow.switches": len(switches)}
        span = self._tracer.begin("declare", about)  # no request asks for it: a trace of its own
        if span is None:
            return await self._declare(partitions, switches)
        compared: set[str] | None = None
        try:
            compared = await self._declare(partitions, switches, span.context)
        finally:
            span.end("the stream has ended" if compared is None else "")
        return compared

    async def _declare(
        self,
        partitions: Collection[OwnedPartition],
        switches: Collection[str],
        trace: bytes = b"",
    ) -> set[str] | None:
        sent: dict[str, set[str]] = {}  # the partitions that have entries, by switch
        compared: set[str] = set()
        for message in _declarations(partitions, switches, trace):
            for name, entries in message.entries.items():
                for switch, packed in entries.items():
                    if packed:
                        sent.setdefault(switch, set()).add(name)
            answer = await self._ask(message, Applied)
            if not answer:
                return None
            if answer.stale:
                log.warning("southbound process %s: %s", self.name, answer.stale)
                return await self._declare_others(message, partitions, switches, answer.stale)
            for switch, outcome in answer.outcomes.items():
                if message.check and not isinstance(outcome, Undefined):
                    compared.add(switch)
                # The last report is newer than the outcome: it may have taken them meanwhile.
                if isinstance(outcome, Failed) and switch in self.refusing:
                    reason = f"switch {switch} does not take what it should hold: {outcome}"
                    log.error("%s", reason)
                    for partition in partitions:
                        if partition.name in sent.get(switch, ()):
                            partition.note_refusal(switch, reason)
        return compared

    async def apply(self, message: Apply) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the epoch is over."""
        answer = await self._ask(message, Applied)
        if not answer:
            reason = f"southbound process {self.name}: {self.stream.reason}"
            return {switch: Undefined(f"switch {switch}: {reason}") for switch in message.batch}
        if answer.stale:
            raise StaleEpoch(answer.stale)
        return answer.outcomes

    async def _declare_others(
        self,
        refused: Declare,
        partitions: Collection[OwnedPartition],
        switches: Collection[str],
        reason: str,
    ) -> set[str] | None:
        """Find out which partitions of a refused declaration are stale, and declare the others."""
        if not await self.raise_epochs(refused.epochs):
            return None
        ours = self._epochs()
        left = [p for p in partitions if ours.get(p.name) == p.epoch]
        if len(left) == len(partitions):
            self.stream.close(f"the southbound process contradicts itself: {reason}")
            return None
        return await self.declare(left, switches)

    async def _ask(self, message: Struct, expected: type[A]) -> A | None:
        """The answer; None if the stream has ended, also because the answer is missing or wrong."""
        try:
            answer = await self.stream.ask(message, ANSWER)
        except StreamClosed:
            return None
        except (RemoteError, TimeoutError, MessageTooLarge) as error:
            # After the stream is back, everything is declared again.
            log.error("southbound process %s: %s", self.name, error or "no answer in time")
            self.stream.close(f"the southbound process did not answer as it should: {error}")
            await asyncio.sleep(RETRY)
            return None
        return answer if isinstance(answer, expected) else None


def _declarations(
    partitions: Iterable[OwnedPartition], switches: Collection[str], trace: bytes
) -> Iterator[Declare]:
    """Messages that declare partitions, none too large; the last one has the switches compared."""
    epochs: dict[str, int] = {}
    entries: dict[str, dict[str, bytes]] = {}
    size = 0
    names = sorted(switches)
    for partition in partitions:
        if size > DECLARED_AT_ONCE:
            yield Declare(epochs, entries, check=False, switches=names, trace=trace)
            epochs, entries, size = {}, {}, 0
        epochs[partition.name] = partition.epoch
        found = partition.declaration(switches)
        entries[partition.name] = packed = {s: pack_entries(e) for s, e in found.items()}
        size += sum(map(len, packed.values()))
    if epochs and names:
        yield Declare(epochs, entries, check=True, switches=names, trace=trace)
