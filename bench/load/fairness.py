"""Fairness: the latency of a quiet host, alone and beside a host that floods the service.

The quiet host sends single requests at a low rate. The flooding host sends batches as fast as it
can, and waits as long as the service says whenever it is refused. It has a process of its own:
otherwise the quiet host would also wait for the load generator.
"""

import asyncio
from collections.abc import Sequence

import uvloop

from bench.load.arrivals import arrival_times
from bench.load.generator import LoadGenerator, LoadResult
from bench.load.traffic import Traffic
from bench.processes.new_process import run_in_new_process
from bench.report import Progress, Row

RATE = 50  # requests/s of the quiet host: enough for a 99th percentile
CALLS, SIZE = 16, 500  # of the flooding host: more than one host may have waiting
WARM_UP = 2.0  # seconds until the flood has filled all queues
_ENCODED_PER_S = 3_000  # subscriptions of the flood that are encoded ahead
_FLOODING = "flooding"


async def measure_fairness(url: str, hosts: int, seconds: float) -> list[Row]:
    """Latencies of the quiet host, alone and beside the flood. The space must exist already."""
    quiet = LoadGenerator(url, Traffic("uniform", hosts, seed=3, host="h1"))
    arrivals = arrival_times("uniform", RATE, seconds)
    alone = await quiet.send_arrivals(arrivals, "single")
    flooding = asyncio.Event()
    loop = asyncio.get_running_loop()
    warm_up = min(WARM_UP, seconds)

    def progress(_: str) -> None:
        loop.call_soon_threadsafe(flooding.set)

    def flood() -> Sequence[Row]:
        return run_in_new_process(progress, _flood, url, hosts, warm_up + seconds)

    async with asyncio.TaskGroup() as group:
        ended = group.create_task(asyncio.to_thread(flood))
        await flooding.wait()
        await asyncio.sleep(warm_up)
        beside = await quiet.send_arrivals(arrivals, "single")
    (flooded,) = ended.result()
    nothing = {"flood_requests_per_s": 0.0, "flood_refused": 0}
    return [_row("nobody", alone) | nothing, _row("flood", beside) | flooded]


def _flood(progress: Progress, url: str, hosts: int, seconds: float) -> list[Row]:
    """The flooding host, in its own process."""
    traffic = Traffic("uniform", hosts, seed=4, host=f"h{hosts}")
    traffic.encode_ahead(round(_ENCODED_PER_S * seconds))
    load = LoadGenerator(url, traffic)

    async def send() -> LoadResult:
        progress(_FLOODING)
        return await load.saturate(seconds, "batch", SIZE, CALLS)

    result = uvloop.run(send())
    return [{"flood_requests_per_s": result.rate, "flood_refused": result.refused.total()}]


def _row(beside: str, quiet: LoadResult) -> Row:
    row = quiet.columns()
    row.pop("operations_per_request")
    return {"beside": beside, **row}


def p99_factor(rows: list[Row]) -> float:
    """The quiet host's p99 beside the flood, over its p99 alone."""
    p99 = {row["beside"]: row["p99_ms"] for row in rows}
    return float(p99["flood"] / p99["nobody"])
