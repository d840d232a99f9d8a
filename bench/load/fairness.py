"""Fairness: the latency of a quiet host, alone and beside a host that floods the service.

The quiet host sends single requests at a low rate. The flooding host sends batches as fast as it
can, and waits as long as the service says whenever it is refused.
"""

import asyncio

from bench.load.arrivals import arrival_times
from bench.load.generator import LoadGenerator, LoadResult
from bench.load.traffic import Traffic
from bench.report import Row

RATE = 20  # requests/s of the quiet host
CALLS, SIZE = 16, 500  # of the flooding host: more than one host may have waiting
WARM_UP = 2.0  # seconds until the flood has filled all queues


async def measure_fairness(url: str, hosts: int, seconds: float) -> list[Row]:
    """Latencies of the quiet host, alone and beside the flood. The space must exist already."""
    quiet = LoadGenerator(url, Traffic("uniform", hosts, seed=3, host="h1"))
    flood = LoadGenerator(url, Traffic("uniform", hosts, seed=4, host=f"h{hosts}"))
    arrivals = arrival_times("uniform", RATE, seconds)
    alone = await quiet.send_arrivals(arrivals, "single")
    async with asyncio.TaskGroup() as group:
        warm_up = min(WARM_UP, seconds)
        flooding = group.create_task(flood.saturate(warm_up + seconds, "batch", SIZE, CALLS))
        await asyncio.sleep(warm_up)
        beside = await quiet.send_arrivals(arrivals, "single")
    return [
        _row("nobody", alone, LoadResult(seconds=seconds)),
        _row("flood", beside, flooding.result()),
    ]


def _row(beside: str, quiet: LoadResult, flood: LoadResult) -> Row:
    row = quiet.columns()
    row.pop("operations_per_request")
    return {
        "beside": beside,
        **row,
        "flood_requests_per_s": flood.rate,
        "flood_refused": flood.refused.total(),
    }


def p99_factor(rows: list[Row]) -> float:
    """The quiet host's p99 beside the flood, over its p99 alone."""
    p99 = {row["beside"]: row["p99_ms"] for row in rows}
    return float(p99["flood"] / p99["nobody"])
