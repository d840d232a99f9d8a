"""Small requests into every partition, again and again, each followed until it is acknowledged.

A probe is a subscription of a host that has no others, so that it takes flow operations whatever
else is active. One that is refused or whose answer gets lost is sent again, and counts from when it
was first sent. Repeated calls have idempotency keys: nothing is done twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct

from bench.calls import CallFailed, Client, Reply
from bench.load import LoadFailed
from bench.traffic import batch, body, removal
from bench.workload import Ask, Workload, make_space
from dzflow.filters import Filter

CANDIDATES = 500  # filters among which probes are looked for
PAUSE = 0.05  # seconds before a call is repeated
_GONE = 404


class Probe(NamedTuple):
    """A filter, and the partitions that have something of it."""

    filter: Filter
    partitions: tuple[str, ...]


class Seen(NamedTuple):
    """A probe was acknowledged; times are of the clock on the wall, as records have them."""

    partitions: tuple[str, ...]
    sent: float
    acknowledged: float


class _Answer(Struct):
    """What is read of a record, or of a problem."""

    id: str = ""
    state: str = ""
    status: int = 0
    partitions: tuple[str, ...] = ()
    acknowledged: float | None = None
    detail: str = ""


_answers = msgspec.json.Decoder(list[_Answer])


class Lane:
    """Sends all probes of a host at once, and removes them, in turns."""

    def __init__(self, url: str, host: str) -> None:
        self.host = host
        self.probes: list[Probe] = []
        self.pause = 0.0  # seconds after each turn
        self.seen: list[Seen] = []
        self.troubles: Counter[str] = Counter()  # calls that were lost, and what was refused
        self.turn = 0.0  # when the last turn that is over began
        self.asking = asyncio.Event()  # set when a turn begins
        self._client = Client(url, 1)

    async def take_turns(self, stop: asyncio.Event) -> None:
        """Go on until told to stop; nothing is left behind."""
        async with self._client:
            while not stop.is_set():
                began = time.time()
                self.asking.set()
                found = await self._all([_body(self.host, probe.filter) for probe in self.probes])
                await self._all([removal(answer.id) for answer in found], ends=True)
                self.turn = began
                try:
                    async with asyncio.timeout(self.pause):
                        await stop.wait()
                except TimeoutError:
                    continue

    async def find_probes(self) -> None:
        """Look for a probe for each partition that requests get into."""
        asks = Workload(make_space("fields"), "uniform", seed=7).asks(CANDIDATES)
        filters = [ask.filter for ask in asks]
        async with self._client:
            answers = await self._all([_body(self.host, each) for each in filters])
            await self._all([removal(answer.id) for answer in answers], ends=True)
        self.probes = choose(
            Probe(wanted, answer.partitions)
            for wanted, answer in zip(filters, answers, strict=True)
        )

    async def _all(self, bodies: Sequence[bytes], ends: bool = False) -> list[_Answer]:
        """Send requests until all are acknowledged, and note when each was."""
        path, wanted = ("/unsubscribe", "removed") if ends else ("/subscribe", "active")
        found: dict[int, _Answer] = {}
        sent = time.time()
        while left := [place for place in range(len(bodies)) if place not in found]:
            answers = await self._call(path, [bodies[place] for place in left])
            for place, answer in zip(left, answers, strict=True):
                if answer.state == wanted or (ends and answer.status == _GONE):
                    found[place] = answer
                    if self.probes:
                        at = answer.acknowledged or time.time()
                        self.seen.append(Seen(self.probes[place].partitions, sent, at))
                else:
                    self.troubles[answer.detail or answer.state] += 1
            if len(found) < len(bodies):
                await asyncio.sleep(PAUSE)
        return [found[place] for place in range(len(bodies))]

    async def _call(self, path: str, bodies: Sequence[bytes]) -> list[_Answer]:
        """Repeat a call until it is answered, and all elements have come to an end."""
        key = uuid4().hex
        while True:
            try:
                reply = await self._client.call("POST", path, batch(bodies), key)
            except (CallFailed, OSError, TimeoutError) as error:
                self.troubles[type(error).__name__] += 1
            else:
                answers = self._read(reply)
                if len(answers) == len(bodies) and not any(map(_open, answers)):
                    return answers
            await asyncio.sleep(PAUSE)

    def _read(self, reply: Reply) -> list[_Answer]:
        if reply.body[:1] != b"[":
            self.troubles[f"{reply.status} for the whole call"] += 1
            return []
        try:
            return _answers.decode(reply.body)
        except msgspec.DecodeError as error:
            raise LoadFailed(f"{reply.status} with {reply.body[:300]!r}: {error}") from None


def choose(found: Iterable[Probe]) -> list[Probe]:
    """For each partition the probe that concerns the fewest others."""
    best: dict[str, Probe] = {}
    for probe in found:
        for name in probe.partitions:
            if name not in best or len(probe.partitions) < len(best[name].partitions):
                best[name] = probe
    return list({id(probe): probe for probe in best.values()}.values())


def _body(host: str, wanted: Filter) -> bytes:
    return body(Ask(host, wanted))


def _open(answer: _Answer) -> bool:
    """Whether it has still to come to its end."""
    return answer.state in ("pending", "removing")
