"""Load on the REST interface: requests as they arrive, or as many as it takes.

A request's latency counts from when it should have been sent to the answer that says that all
switches have acknowledged it, however late it was really sent. Bodies are encoded beforehand and
answers are read with as little effort as possible: the load shares the machine with the service.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from bench.arrivals import summary
from bench.calls import Client, Reply
from bench.report import Row
from bench.traffic import SPACE, Traffic, batch, removal
from dzflow.errors import DzflowError

Way = Literal["single", "batch"]
GATHER = 0.04  # seconds between two batches
LARGEST = 1_000  # requests in a batch
CONNECTIONS = 64
CALLS = 8  # batches under way when there is always one more
PAUSE = 0.1  # seconds before the next try when the service refuses
STAGES = ("indexed", "journaled", "queued", "decided", "pushed", "committed")


class LoadFailed(DzflowError):
    """The service does not do what the benchmark needs it to."""


class _Timing(Struct):
    """Where a request's time went, in milliseconds."""

    indexed_ms: float
    journaled_ms: float
    queued_ms: float
    decided_ms: float
    pushed_ms: float
    committed_ms: float
    total_ms: float


class _Answer(Struct):
    """What is read of a record, or of a problem."""

    id: str = ""
    state: str = ""
    flow_ops: int = 0
    timing: _Timing | None = None
    detail: str = ""
    retry_after: float | None = None


class _Sent(NamedTuple):
    """What came of a call."""

    done: list[_Answer]
    later: list[int]  # places of those that were not taken on now
    pause: float  # seconds to wait before more is sent


_one = msgspec.json.Decoder(_Answer)
_many = msgspec.json.Decoder(list[_Answer])


class Measured(Struct):
    """What came of some load."""

    seconds: float = 0.0  # from the first request to the last answer
    latencies: list[float] = field(default_factory=list)
    flow_ops: int = 0
    stages: list[float] = field(default_factory=lambda: [0.0] * len(STAGES))  # summed, in ms
    total: float = 0.0  # the records' own total, likewise
    gap: float = 0.0  # by how much the stages of a record miss its total at most, in ms
    timed: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Acknowledged requests per second."""
        return len(self.latencies) / self.seconds

    @property
    def flow_mods_per_s(self) -> float:
        """Acknowledged flow operations per second."""
        return self.flow_ops / self.seconds

    def row(self) -> Row:
        """How fast requests were, and how many were not acknowledged."""
        return {
            "requests_per_s": self.rate,
            **summary(self.latencies),
            "operations_per_request": self.flow_ops / max(1, len(self.latencies)),
            "refused": self.refused.total(),
        }

    def stages_row(self) -> Row:
        """Where the time went, as the records say, and what the load saw of it, on average."""
        timed = max(1, self.timed)
        return {
            **{f"{s}_ms": total / timed for s, total in zip(STAGES, self.stages, strict=True)},
            "total_ms": self.total / timed,
            "seen_ms": 1e3 * sum(self.latencies) / max(1, len(self.latencies)),
            "largest_gap_ms": self.gap,
        }

    def note(self, latency: float, answer: _Answer) -> None:
        """One more request was acknowledged."""
        self.latencies.append(latency)
        self.flow_ops += answer.flow_ops
        if timing := answer.timing:
            parts = [getattr(timing, f"{stage}_ms") for stage in STAGES]
            for n, part in enumerate(parts):
                self.stages[n] += part
            self.total += timing.total_ms
            self.gap = max(self.gap, abs(sum(parts) - timing.total_ms))
            self.timed += 1


class Load:
    """Sends the requests of some traffic and keeps account."""

    def __init__(self, url: str, traffic: Traffic) -> None:
        self._url = url
        self._traffic = traffic
        self._measured = Measured()
        self._client = Client(url, CONNECTIONS)  # a new one for each measurement

    async def prepare(self) -> None:
        """Make the space and the publishers' advertisements."""
        schema, publishers = self._traffic.schema, self._traffic.publishers
        async with Client(self._url, 1) as client:
            made = await client.call("PUT", f"/spaces/{SPACE}", msgspec.json.encode(schema))
            if made.status not in (200, 201):
                raise LoadFailed(f"the space is refused: {made.status} {made.body[:300]!r}")
            done = await client.call("POST", "/advertise", batch(publishers))
        states = {answer.state or answer.detail for answer in _answers(done)}
        if states != {"active"}:
            raise LoadFailed(f"the publishers' advertisements are {states}, not active")

    async def fill(self, active: int, size: int = 500) -> Measured:
        """Subscribe until so many subscriptions are active."""
        missing = max(0, active - self._traffic.active)
        sizes = deque([size] * (missing // size) + [missing % size] * (missing % size > 0))

        async def worker() -> None:
            while sizes:
                due = [time.perf_counter()] * sizes.popleft()
                if not (await self._subscribe(due)).done:
                    raise LoadFailed(f"subscriptions are refused: {self._measured.refused}")

        return await self._measure([worker() for _ in range(CALLS)])

    async def saturate(
        self, seconds: float, way: Way, size: int = 250, calls: int = CALLS
    ) -> Measured:
        """Keep calls under way for a while, in turn one that begins and one that ends.

        Who is refused waits for as long as the service says.
        """
        until = time.perf_counter() + seconds
        calls, size = (calls, size) if way == "batch" else (CONNECTIONS, 1)

        async def worker(number: int) -> None:
            ends = number % 2 == 1
            while (now := time.perf_counter()) < until:
                due = [now] * size
                ends = ends and self._traffic.active >= size
                send = self._unsubscribe if ends else self._subscribe
                sent = await send(due, way)
                await asyncio.sleep(min(sent.pause, max(0.0, until - time.perf_counter())))
                ends = not ends

        return await self._measure([worker(number) for number in range(calls)])

    async def arrive(self, arrivals: Sequence[float], way: Way) -> Measured:
        """Send each request when it arrives, every second one an end, and wait for all answers."""
        began = time.perf_counter()

        async def send() -> None:
            waiting = deque(enumerate(arrivals))
            async with asyncio.TaskGroup() as calls:
                while waiting:
                    now = time.perf_counter() - began
                    begins: list[float] = []
                    ends: list[float] = []
                    while waiting and waiting[0][1] <= now:
                        number, at = waiting.popleft()
                        # If the service is so late that nothing is left to end, one more begins.
                        ending = number % 2 and len(ends) < self._traffic.active
                        (ends if ending else begins).append(began + at)
                    size = LARGEST if way == "batch" else 1
                    for start in range(0, len(begins), size):
                        calls.create_task(self._subscribe(begins[start : start + size], way))
                    for start in range(0, len(ends), size):
                        calls.create_task(self._unsubscribe(ends[start : start + size], way))
                    if waiting:
                        pause = GATHER if way == "batch" else 0.0
                        next_at = began + waiting[0][1] - time.perf_counter()
                        await asyncio.sleep(max(pause, next_at))

        return await self._measure([send()])

    async def _measure(self, workers: Sequence[Coroutine[None, None, None]]) -> Measured:
        self._measured = measured = Measured()
        async with Client(self._url, CONNECTIONS) as self._client, asyncio.TaskGroup() as group:
            began = time.perf_counter()
            for worker in workers:
                group.create_task(worker)
        measured.seconds = time.perf_counter() - began
        return measured

    async def _subscribe(self, due: Sequence[float], way: Way = "batch") -> _Sent:
        bodies = [self._traffic.subscription() for _ in due]
        sent = await self._send("/subscribe", bodies, due, way, "active")
        for answer in sent.done:
            self._traffic.began(answer.id)
        return sent

    async def _unsubscribe(self, due: Sequence[float], way: Way = "batch") -> _Sent:
        names = [self._traffic.ending() for _ in due]
        sent = await self._send("/unsubscribe", [*map(removal, names)], due, way, "removed")
        for place in sent.later:
            self._traffic.began(names[place])  # it goes on
        return sent

    async def _send(
        self, path: str, bodies: list[bytes], due: Sequence[float], way: Way, wanted: str
    ) -> _Sent:
        """One call, and which of its requests came to the state wanted."""
        sent = batch(bodies) if way == "batch" else bodies[0]
        reply = await self._client.call("POST", path, sent)
        now = time.perf_counter()
        answers = _answers(reply)
        if len(answers) != len(due):  # refused as a whole
            answers *= len(due)
        done: list[_Answer] = []
        later: list[int] = []
        pause = 0.0
        for place, (at, answer) in enumerate(zip(due, answers, strict=True)):
            if answer.state == wanted:
                self._measured.note(now - at, answer)
                done.append(answer)
                continue
            self._measured.refused[answer.detail or answer.state] += 1
            pause = max(pause, answer.retry_after or PAUSE)
            if answer.retry_after:
                later.append(place)
        return _Sent(done, later, pause)


def _answers(reply: Reply) -> list[_Answer]:
    try:
        return _many.decode(reply.body) if reply.body[:1] == b"[" else [_one.decode(reply.body)]
    except msgspec.DecodeError as error:
        raise LoadFailed(f"{reply.status} with {reply.body[:300]!r}: {error}") from None
