"""Generates load on the REST interface: requests at given times, or as many as the service takes.

The latency of a request counts from the time at which it should have been sent, however late it was
really sent, to the answer that all switches have acknowledged it. Bodies are encoded ahead, and
answers are decoded only partly, because the load shares the machine with the service.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from bench.load.arrivals import latency_columns
from bench.load.http_client import HttpClient, Reply
from bench.load.traffic import SPACE, Traffic, batch_body, removal_body
from bench.report import Row
from dzflow.errors import DzflowError

CallKind = Literal["single", "batch"]
GATHER = 0.01  # seconds between two batches; half of it is the load's own part of the mean latency
LARGEST = 1_000  # requests in a batch
CONNECTIONS = 64
CALLS = 8  # concurrent batch calls at saturation
PAUSE = 0.1  # seconds to wait after a refusal without Retry-After
STAGES = ("indexed", "journaled", "queued", "decided", "pushed", "committed")


class LoadFailed(DzflowError):
    """The service refuses what the benchmark depends on."""


class _Timing(Struct):
    """The stages of a request, in milliseconds."""

    indexed_ms: float
    journaled_ms: float
    queued_ms: float
    decided_ms: float
    pushed_ms: float
    committed_ms: float
    total_ms: float


class _Answer(Struct):
    """The fields of a record, or of a problem, that the load generator reads."""

    id: str = ""
    state: str = ""
    flow_ops: int = 0
    timing: _Timing | None = None
    detail: str = ""
    retry_after: float | None = None


class _CallResult(NamedTuple):
    """The result of one call."""

    done: list[_Answer]
    deferred: list[int]  # positions of the requests that the service told to come later
    pause: float  # seconds to wait before the next call


_decode_one = msgspec.json.Decoder(_Answer).decode
_decode_many = msgspec.json.Decoder(list[_Answer]).decode


class LoadResult(Struct):
    """The measurements of some load."""

    seconds: float = 0.0  # from the first request to the last answer
    latencies: list[float] = field(default_factory=list)
    flow_ops: int = 0
    stages: list[float] = field(default_factory=lambda: [0.0] * len(STAGES))  # summed, in ms
    total: float = 0.0  # the records' own totals, summed, in ms
    gap: float = 0.0  # the largest difference between a record's stages and its total, in ms
    timed: int = 0  # records with a timing
    refused: Counter[str] = field(default_factory=Counter)  # by reason

    @property
    def rate(self) -> float:
        """Acknowledged requests per second."""
        return len(self.latencies) / self.seconds

    def columns(self) -> Row:
        """Rate, latencies, operations, and the number of refused requests."""
        return {
            "requests_per_s": self.rate,
            **latency_columns(self.latencies),
            "operations_per_request": self.flow_ops / max(1, len(self.latencies)),
            "refused": self.refused.total(),
        }

    def stage_columns(self) -> Row:
        """Average stages as the records tell them, and the average latency that the load saw."""
        timed = max(1, self.timed)
        return {
            **{f"{s}_ms": total / timed for s, total in zip(STAGES, self.stages, strict=True)},
            "total_ms": self.total / timed,
            "seen_ms": 1e3 * sum(self.latencies) / max(1, len(self.latencies)),
            "largest_gap_ms": self.gap,
        }

    def add(self, latency: float, answer: _Answer) -> None:
        """Count an acknowledged request."""
        self.latencies.append(latency)
        self.flow_ops += answer.flow_ops
        if timing := answer.timing:
            parts = [getattr(timing, f"{stage}_ms") for stage in STAGES]
            for n, part in enumerate(parts):
                self.stages[n] += part
            self.total += timing.total_ms
            self.gap = max(self.gap, abs(sum(parts) - timing.total_ms))
            self.timed += 1


class LoadGenerator:
    """Sends the requests of some traffic to a service, and measures them.

    `keyed` is the share of calls that have an idempotency key. A call that finds all `connections`
    in use waits for one; its latency counts from when it was due.
    """

    def __init__(
        self, url: str, traffic: Traffic, keyed: float = 0.0, connections: int = CONNECTIONS
    ) -> None:
        self._url = url
        self._traffic = traffic
        self._connections = connections
        self._keyed = keyed
        self._random = Random(1)
        self._result = LoadResult()
        self._from = 0.0  # requests that should have been sent earlier are not measured
        self._client = HttpClient(url, connections)  # a new one for each measurement

    async def prepare(self) -> None:
        """Create the space and the publishers' advertisements."""
        schema, publishers = self._traffic.schema, self._traffic.publishers
        async with HttpClient(self._url, 1) as client:
            created = await client.call("PUT", f"/spaces/{SPACE}", msgspec.json.encode(schema))
            if created.status not in (200, 201):
                raise LoadFailed(f"the service refuses the space: {created.body[:300]!r}")
            done = await client.call("POST", "/advertise", batch_body(publishers))
        states = {answer.state or answer.detail for answer in _answers(done)}
        if states != {"active"}:
            raise LoadFailed(f"the publishers' advertisements are {states}, not active")

    async def fill(self, active: int, size: int = 500) -> LoadResult:
        """Subscribe until this many subscriptions are active."""
        missing = max(0, active - self._traffic.active)
        sizes = deque([size] * (missing // size) + [missing % size] * (missing % size > 0))

        async def worker() -> None:
            while sizes:
                due = [time.perf_counter()] * sizes.popleft()
                if not (await self._subscribe(due)).done:
                    raise LoadFailed(f"the service refuses subscriptions: {self._result.refused}")

        return await self._measure([worker() for _ in range(CALLS)])

    async def drain(self, active: int, size: int = 500) -> None:
        """Unsubscribe until no more than this many subscriptions are active."""
        while (surplus := self._traffic.active - active) > 0:
            await self._measure([self._drop(min(size, surplus))])

    async def saturate(
        self, seconds: float, kind: CallKind, size: int = 250, calls: int = CALLS
    ) -> LoadResult:
        """Keep calls in progress for some seconds, subscriptions and removals in turn.

        After a refusal, a caller waits for as long as the service says.
        """
        until = time.perf_counter() + seconds
        calls, size = (calls, size) if kind == "batch" else (self._connections, 1)

        async def worker(number: int) -> None:
            remove = number % 2 == 1
            while (now := time.perf_counter()) < until:
                due = [now] * size
                remove = remove and self._traffic.active >= size
                send = self._unsubscribe if remove else self._subscribe
                result = await send(due, kind)
                await asyncio.sleep(min(result.pause, max(0.0, until - time.perf_counter())))
                remove = not remove

        return await self._measure([worker(number) for number in range(calls)])

    async def send_one_by_one(self, count: int, rest: float) -> LoadResult:
        """Send requests one after the other, every second one a removal, with a rest after each."""

        async def send() -> None:
            for number in range(count):
                due = [time.perf_counter()]
                call = self._unsubscribe if number % 2 else self._subscribe
                await call(due, "single")
                await asyncio.sleep(rest)

        return await self._measure([send()])

    async def send_arrivals(
        self,
        arrivals: Sequence[float],
        kind: CallKind,
        skip: float = 0.0,
        *,
        removals: bool = True,
    ) -> LoadResult:
        """Send each request at its time, and wait for all answers.

        Every second one is a removal, unless `removals` is false. Those of the first `skip` seconds
        are sent, but not measured.
        """
        began = time.perf_counter()

        async def send() -> None:
            waiting = deque(enumerate(arrivals))
            async with asyncio.TaskGroup() as calls:
                while waiting:
                    now = time.perf_counter() - began
                    added: list[float] = []
                    removed: list[float] = []
                    while waiting and waiting[0][1] <= now:
                        number, at = waiting.popleft()
                        # Subscribe if the service is so late that nothing is left to remove.
                        removes = removals and number % 2 and len(removed) < self._traffic.active
                        (removed if removes else added).append(began + at)
                    size = LARGEST if kind == "batch" else 1
                    for start in range(0, len(added), size):
                        calls.create_task(self._subscribe(added[start : start + size], kind))
                    for start in range(0, len(removed), size):
                        calls.create_task(self._unsubscribe(removed[start : start + size], kind))
                    if waiting:
                        pause = GATHER if kind == "batch" else 0.0
                        next_at = began + waiting[0][1] - time.perf_counter()
                        await asyncio.sleep(max(pause, next_at))

        return await self._measure([send()], skip)

    async def _measure(
        self, workers: Sequence[Coroutine[None, None, None]], skip: float = 0.0
    ) -> LoadResult:
        self._result = result = LoadResult()
        self._from = time.perf_counter() + skip if skip else 0.0
        client = HttpClient(self._url, self._connections)
        async with client as self._client, asyncio.TaskGroup() as group:
            began = time.perf_counter()
            for worker in workers:
                group.create_task(worker)
        result.seconds = time.perf_counter() - began - skip
        return result

    async def _subscribe(self, due: Sequence[float], kind: CallKind = "batch") -> _CallResult:
        bodies = [self._traffic.next_subscription() for _ in due]
        result = await self._send("/subscribe", bodies, due, kind, "active")
        for answer in result.done:
            self._traffic.add_active(answer.id)
        return result

    async def _unsubscribe(self, due: Sequence[float], kind: CallKind = "batch") -> _CallResult:
        names = [self._traffic.pick_removal() for _ in due]
        result = await self._send("/unsubscribe", [*map(removal_body, names)], due, kind, "removed")
        for place in result.deferred:
            self._traffic.add_active(names[place])  # still active
        return result

    async def _drop(self, count: int) -> None:
        result = await self._unsubscribe([time.perf_counter()] * count)
        await asyncio.sleep(result.pause)

    async def _send(
        self, path: str, bodies: list[bytes], due: Sequence[float], kind: CallKind, wanted: str
    ) -> _CallResult:
        """Send one call, and count the requests that reached the wanted state."""
        body = batch_body(bodies) if kind == "batch" else bodies[0]
        key = uuid4().hex if self._random.random() < self._keyed else ""
        reply = await self._client.call("POST", path, body, key)
        now = time.perf_counter()
        answers = _answers(reply)
        if len(answers) != len(due):  # the service refused the whole call
            answers *= len(due)
        done: list[_Answer] = []
        deferred: list[int] = []
        pause = 0.0
        for place, (at, answer) in enumerate(zip(due, answers, strict=True)):
            if answer.state == wanted:
                if at >= self._from:
                    self._result.add(now - at, answer)
                done.append(answer)
                continue
            self._result.refused[answer.detail or answer.state] += 1
            pause = max(pause, answer.retry_after or PAUSE)
            if answer.retry_after:
                deferred.append(place)
        return _CallResult(done, deferred, pause)


def _answers(reply: Reply) -> list[_Answer]:
    try:
        return _decode_many(reply.body) if reply.body[:1] == b"[" else [_decode_one(reply.body)]
    except msgspec.DecodeError as error:
        raise LoadFailed(f"{reply.status} with {reply.body[:300]!r}: {error}") from None
