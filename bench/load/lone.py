"""A lone request on a service at rest, beside what two writes to etcd take in the same run.

A request is written to etcd twice: before it is carried out, and when it is settled. Writes are
measured one right after the other, and with the same rest between them as requests have: processes
that have rested take longer to wake up.
"""

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.load.arrivals import percentile
from bench.load.generator import LoadGenerator
from bench.report import Row
from configurators.store.etcd.client import Etcd, Put
from configurators.store.server.server import EtcdServer

REST = 0.03  # seconds between two requests
_VALUE = b"x" * 500  # about as much as a record


async def measure_lone(load: LoadGenerator, count: int) -> Row:
    """Latencies and stages of requests that are sent one by one, and of writes to an etcd."""
    alone = await load.send_one_by_one(count, REST)
    row: dict[str, Any] = alone.columns()
    del row["requests_per_s"], row["operations_per_request"]
    with TemporaryDirectory(prefix="dzflow-bench-") as folder, EtcdServer(Path(folder)) as server:
        async with Etcd(server.access()) as etcd:
            at_once = await _write_ms(etcd, count, 0.0)
            rested = await _write_ms(etcd, count, REST)
    return {
        **row,
        **alone.stage_columns(),
        "etcd_write_ms": at_once,
        "etcd_write_after_rest_ms": rested,
    }


async def _write_ms(etcd: Etcd, count: int, rest: float) -> float:
    """The median time of a transaction that writes one key, with a rest after each."""
    times = []
    for number in range(count):
        began = time.perf_counter()
        await etcd.transact([], [Put(f"records/{number}", _VALUE)])
        times.append(time.perf_counter() - began)
        await asyncio.sleep(rest)
    return 1e3 * percentile(sorted(times), 0.5)


def lone_ratios(row: Row) -> dict[str, float]:
    """The median latency, and how many times two writes to etcd that is."""
    return {
        "lone_ms": row["p50_ms"],
        "lone_over_two_writes": row["p50_ms"] / (2 * row["etcd_write_ms"]),
        "lone_over_two_writes_after_rest": row["p50_ms"] / (2 * row["etcd_write_after_rest_ms"]),
    }
