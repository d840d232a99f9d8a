"""Whether a host that floods keeps another one waiting.

A quiet host sends a request now and then, alone, and beside another host that sends batches as fast
as it can; the other one waits as long as it is told to whenever it is refused.
"""

import asyncio

from bench.arrivals import arrival_times
from bench.load import Load, Measured
from bench.report import Row
from bench.traffic import Traffic

RATE = 20  # requests/s of the quiet host
CALLS, SIZE = 16, 500  # of the flood: more than may wait of one host
WARM = 2.0  # seconds until the flood has filled what it can


async def fairness(url: str, hosts: int, seconds: float) -> list[Row]:
    """Latencies of the quiet host, alone and beside the flood; the space is there already."""
    quiet = Load(url, Traffic("uniform", hosts, seed=3, host="h1"))
    flood = Load(url, Traffic("uniform", hosts, seed=4, host=f"h{hosts}"))
    arrivals = arrival_times("uniform", RATE, seconds)
    alone = await quiet.arrive(arrivals, "single")
    async with asyncio.TaskGroup() as group:
        warm = min(WARM, seconds)
        flooding = group.create_task(flood.saturate(warm + seconds, "batch", SIZE, CALLS))
        await asyncio.sleep(warm)
        beside = await quiet.arrive(arrivals, "single")
    return [
        _row("nobody", alone, Measured(seconds=seconds)),
        _row("flood", beside, flooding.result()),
    ]


def _row(name: str, quiet: Measured, flood: Measured) -> Row:
    row = quiet.row()
    row.pop("operations_per_request")
    return {
        "beside": name,
        **row,
        "flood_requests_per_s": flood.rate,
        "flood_refused": flood.refused.total(),
    }


def factor(rows: list[Row]) -> float:
    """How many times as high the quiet host's p99 is beside the flood."""
    found = {row["beside"]: row["p99_ms"] for row in rows}
    return float(found["flood"] / found["nobody"])
