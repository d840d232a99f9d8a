"""Sends small requests into every partition, again and again, and records when each is done.

A probe is a subscription of a host without other subscriptions, so it takes flow operations however
much is active. A probe that is refused, or whose answer is lost, is sent again under its
idempotency key. Its time counts from when it was first sent.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct

from bench.load.generator import LoadFailed
from bench.load.http_client import CallFailed, HttpClient, Reply
from bench.load.traffic import batch_body, removal_body, request_body
from bench.workload import HostFilter, Workload, make_space
from dzflow.filters import Filter

CANDIDATES = 500  # filters that probes are chosen from
RETRY_AFTER = 0.05  # seconds
_GONE = 404


class Probe(NamedTuple):
    """A filter, and the partitions that its regions belong to."""

    filter: Filter
    partitions: tuple[str, ...]


class ProbeResult(NamedTuple):
    """An acknowledged probe. Times are wall-clock times, as in records."""

    partitions: tuple[str, ...]
    sent: float
    acknowledged: float


class _Answer(Struct):
    """The fields of a record, or of a problem, that the prober reads."""

    id: str = ""
    state: str = ""
    status: int = 0
    partitions: tuple[str, ...] = ()
    acknowledged: float | None = None
    detail: str = ""


_decode = msgspec.json.Decoder(list[_Answer]).decode


class Prober:
    """Sends all probes of one host at once and removes them, round after round."""

    def __init__(self, url: str, host: str) -> None:
        self.host = host
        self.probes: list[Probe] = []
        self.pause = 0.0  # seconds after each round
        self.results: list[ProbeResult] = []
        self.retries: Counter[str] = Counter()  # by reason: lost calls and refusals
        self.last_round_began = 0.0  # the begin of the last completed round
        self.round_began = asyncio.Event()
        self._client = HttpClient(url, 1)

    async def probe_until(self, stop: asyncio.Event) -> None:
        """Run rounds until `stop` is set. The last round removes its subscriptions, too."""
        async with self._client:
            while not stop.is_set():
                began = time.time()
                self.round_began.set()
                bodies = [self._body(probe.filter) for probe in self.probes]
                added = await self._send_until_done(bodies)
                removals = [removal_body(answer.id) for answer in added]
                await self._send_until_done(removals, removing=True)
                self.last_round_began = began
                try:
                    async with asyncio.timeout(self.pause):
                        await stop.wait()
                except TimeoutError:
                    continue

    async def find_probes(self) -> None:
        """Choose a probe for each partition that the workload reaches."""
        workload = Workload(make_space("fields"), "uniform", seed=7)
        filters = [each.filter for each in workload.subscriptions(CANDIDATES)]
        async with self._client:
            answers = await self._send_until_done([self._body(each) for each in filters])
            removals = [removal_body(answer.id) for answer in answers]
            await self._send_until_done(removals, removing=True)
        self.probes = choose_probes(
            Probe(wanted, answer.partitions)
            for wanted, answer in zip(filters, answers, strict=True)
        )

    async def _send_until_done(
        self, bodies: Sequence[bytes], removing: bool = False
    ) -> list[_Answer]:
        """Send requests until all are acknowledged, and record when each was."""
        path, wanted = ("/unsubscribe", "removed") if removing else ("/subscribe", "active")
        found: dict[int, _Answer] = {}
        sent = time.time()
        while left := [place for place in range(len(bodies)) if place not in found]:
            answers = await self._call(path, [bodies[place] for place in left])
            for place, answer in zip(left, answers, strict=True):
                if answer.state == wanted or (removing and answer.status == _GONE):
                    found[place] = answer
                    if self.probes:
                        at = answer.acknowledged or time.time()
                        partitions = self.probes[place].partitions
                        self.results.append(ProbeResult(partitions, sent, at))
                else:
                    self.retries[answer.detail or answer.state] += 1
            if len(found) < len(bodies):
                await asyncio.sleep(RETRY_AFTER)
        return [found[place] for place in range(len(bodies))]

    async def _call(self, path: str, bodies: Sequence[bytes]) -> list[_Answer]:
        """Repeat a call until it is answered, and no element is in progress any more."""
        key = uuid4().hex
        while True:
            try:
                reply = await self._client.call("POST", path, batch_body(bodies), key)
            except (CallFailed, OSError, TimeoutError) as error:
                self.retries[type(error).__name__] += 1
            else:
                answers = self._read(reply)
                if len(answers) == len(bodies) and not any(map(_in_progress, answers)):
                    return answers
            await asyncio.sleep(RETRY_AFTER)

    def _body(self, wanted: Filter) -> bytes:
        return request_body(HostFilter(self.host, wanted))

    def _read(self, reply: Reply) -> list[_Answer]:
        if reply.body[:1] != b"[":
            self.retries[f"{reply.status} for the whole call"] += 1
            return []
        try:
            return _decode(reply.body)
        except msgspec.DecodeError as error:
            raise LoadFailed(f"{reply.status} with {reply.body[:300]!r}: {error}") from None


def choose_probes(candidates: Iterable[Probe]) -> list[Probe]:
    """For each partition, the probe that reaches the fewest other partitions."""
    best: dict[str, Probe] = {}
    for probe in candidates:
        for name in probe.partitions:
            if name not in best or len(probe.partitions) < len(best[name].partitions):
                best[name] = probe
    return list({id(probe): probe for probe in best.values()}.values())


def _in_progress(answer: _Answer) -> bool:
    return answer.state in ("pending", "removing")
