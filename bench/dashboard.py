"""What open dashboards cost the service: its rate with three of them, beside its rate without.

Each of the clients holds the connections of an open page, asks for what all views together ask for
again and again, and reads everything that the service sends, without drawing it: a viewer's browser
runs on another machine. What a click asks for (the tables of a switch, explanations) is not asked.
"""

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import NamedTuple

import httpx
import uvloop

from bench.control import PARTITIONS, TOPOLOGY, processor_columns
from bench.cpu import CpuMeter
from bench.forked import MeasurementFailed
from bench.load.generator import LoadGenerator
from bench.load.traffic import Traffic
from bench.report import Progress, Report, Row
from bench.service import running_url
from sdn.topologies import topology

# The page's own: js/live.js, and the views with most traffic (requests, event space, workers).
STREAMS = (
    "/stream?types=space,network,switch,configurator,plan,job,load,history",
    "/stream?types=record&most=20",
)
POLLED = (
    *("/readyz", "/partitions", "/configurators", "/southbound"),
    *("/switches", "/reports", "/balancing"),
)
EVERY = 1.0  # seconds between two polls; the page asks some of them less often
ENCODED_PER_S = 2_500  # subscriptions encoded ahead for each second of load
START = 60.0  # seconds that the clients may take to connect


class Scale(NamedTuple):
    """The extent of the benchmark."""

    rounds: int = 5  # of each kind, in turn
    seconds: float = 10.0  # of each round
    pages: int = 3
    active: int = 10_000
    topology: str = TOPOLOGY
    partitions: int = PARTITIONS


FULL = Scale()
QUICK = Scale(rounds=3, seconds=4.0, active=2_000)


def run(quick: bool, progress: Progress) -> Report:
    """Measure rounds without and with clients in turn, on one service."""
    scale = QUICK if quick else FULL
    report = Report("dashboard", {"quick": quick, **scale._asdict()})
    traffic = Traffic("uniform", len(topology(scale.topology).hosts))
    needed = scale.active + round(2 * scale.rounds * scale.seconds * ENCODED_PER_S / 2)
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(traffic.encode_ahead, needed)
        progress("starting")
        with running_url(topology=scale.topology, partitions=scale.partitions) as url:
            encoding.result()
            report.rows = uvloop.run(_measure(url, scale, traffic, progress))
    report.ratios = ratios(report.rows)
    return report


def ratios(rows: list[Row]) -> dict[str, float]:
    """The median rate with clients over that without, and the same for processor time."""

    def typical(pages: bool, column: str) -> float:
        return float(median(row[column] for row in rows if bool(row["pages"]) is pages))

    return {
        "requests_per_s_with_over_without": typical(True, "requests_per_s")
        / typical(False, "requests_per_s"),
        "api_us_with_over_without": typical(True, "api_us") / typical(False, "api_us"),
    }


async def _measure(url: str, scale: Scale, traffic: Traffic, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    load = LoadGenerator(url, traffic)
    await load.prepare()
    progress(f"{scale.active:,} subscriptions")
    await load.fill(scale.active)
    cpu = CpuMeter()
    for number in range(2 * scale.rounds):
        pages = scale.pages if number % 2 else 0
        progress(f"[{number + 1}/{2 * scale.rounds}] {pages} dashboards")
        with _pages(url, pages) as received:
            gc.collect()
            cpu.read()
            result = await load.saturate(scale.seconds, "batch")
            spent = processor_columns(cpu.read(), result)
        rows.append(
            {
                "measure": "rounds",
                "pages": pages,
                **result.columns(),
                "received_kb_per_s": received() / 1e3 / scale.seconds,
                "api_us": spent["api_us"],
                "all_us": spent["all_us"],
            }
        )
    return rows


class _Received:
    """How many bytes the clients got; known after they have ended."""

    bytes = 0

    def __call__(self) -> int:
        return self.bytes


@contextmanager
def _pages(url: str, number: int) -> Iterator[_Received]:
    """Clients in a process of their own, from when all are connected until the block ends."""
    received = _Received()
    if not number:
        yield received
        return
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, url, number), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START):
            raise MeasurementFailed(f"the dashboards did not connect within {START:g} s")
        ours.recv()
        yield received
        ours.send(None)
        received.bytes = ours.recv()
    except EOFError as ended:
        raise MeasurementFailed("the dashboards lost the service; see above") from ended
    finally:
        process.terminate()
        process.join()


def _serve(connection: Connection, url: str, number: int) -> None:
    uvloop.run(_look(connection, url, number))


async def _look(connection: Connection, url: str, number: int) -> None:
    """Read everything until `connection` says that it is enough, then tell how much it was."""
    amounts: list[int] = []
    connected: asyncio.Queue[None] = asyncio.Queue()
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:  # noqa: S113 - it waits
        work = [_follow(client, path, amounts, connected) for path in STREAMS * number]
        work += [_poll(client, amounts) for _ in range(number)]
        tasks = [asyncio.ensure_future(each) for each in work]
        for _ in STREAMS * number:
            await connected.get()
        amounts.clear()
        connection.send(None)
        enough = asyncio.ensure_future(asyncio.to_thread(connection.recv))
        done, _ = await asyncio.wait({enough, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in done - {enough}:
            task.result()
            raise MeasurementFailed("the service has ended a stream")
        connection.send(sum(amounts))


async def _follow(
    client: httpx.AsyncClient, path: str, amounts: list[int], connected: "asyncio.Queue[None]"
) -> None:
    async with client.stream("GET", path) as response:
        response.raise_for_status()
        connected.put_nowait(None)
        async for part in response.aiter_raw():
            amounts.append(len(part))  # noqa: PERF401 - each at its moment


async def _poll(client: httpx.AsyncClient, amounts: list[int]) -> None:
    while True:
        for path in POLLED:
            response = await client.get(path)
            response.raise_for_status()
            amounts.append(len(response.content))
        await asyncio.sleep(EVERY)
