"""What open dashboards cost the service: its rate with three of them, beside its rate without.

Each of the clients holds the connections of an open page with another view, asks as often as that
view does, and reads everything that the service sends, without drawing it: a viewer's browser runs
on another machine, so these clients take as little processor time as they can. What a click asks
for (the tables of a switch, explanations) is not asked.
"""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from bench.control import PARTITIONS, TOPOLOGY, processor_columns
from bench.load.generator import LoadGenerator
from bench.load.http_client import HttpClient
from bench.load.traffic import Traffic
from bench.processes.cpu import CpuMeter
from bench.processes.forked import MeasurementFailed
from bench.processes.service import running_url
from bench.report import Progress, Report, Row
from sdn.network.topologies import topology


class View(NamedTuple):
    """The streams that an open view reads, and what it asks for every so many seconds."""

    streams: tuple[str, ...] = ()
    polled: tuple[tuple[str, float], ...] = ()


# What every page does (js/live.js), and what the three views do that cost the service most.
PAGE = View(
    ("/stream?types=space,network,switch,configurator,plan,job,load,history",),
    (("/readyz", 1.0),),
)
VIEWS = (
    View(streams=("/stream?types=record&most=20",)),  # requests
    View(polled=(("/partitions", 1.0), ("/balancing", 5.0))),  # event space
    View(polled=(("/switches", 2.0), ("/partitions", 2.0))),  # network
)
ENCODED_PER_S = 2_500  # subscriptions encoded ahead for each second of load
_AT_ONCE = 1 << 16  # bytes that are read from a stream at once
START = 60.0  # seconds that the clients may take to connect


class Scale(NamedTuple):
    """The extent of the benchmark."""

    rounds: int = 5  # of each kind, in turn
    seconds: float = 10.0  # of each round
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
        pages = len(VIEWS) if number % 2 else 0
        progress(f"[{number + 1}/{2 * scale.rounds}] {pages} dashboards")
        with _pages(url, VIEWS[:pages]) as received:
            gc.collect()
            cpu.read()
            result = await load.saturate(scale.seconds, "batch")
            spent = processor_columns(cpu.read(), result)
        rows.append(
            {
                "measure": "rounds",
                "pages": pages,
                **result.columns(),
                "received_kb_per_s": sum(received) / 1e3 / scale.seconds,
                "api_us": spent["api_us"],
                "all_us": spent["all_us"],
            }
        )
    return rows


@contextmanager
def _pages(url: str, views: Sequence[View]) -> Iterator[list[int]]:
    """Clients in a process of their own, from when all are connected until the block ends.

    The list then has the number of bytes that they got.
    """
    received: list[int] = []
    if not views:
        yield received
        return
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, url, views), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START):
            raise MeasurementFailed(f"the dashboards did not connect within {START:g} s")
        ours.recv()
        yield received
        ours.send(None)
        received.append(ours.recv())
    except EOFError as ended:
        raise MeasurementFailed("the dashboards lost the service; see above") from ended
    finally:
        process.terminate()
        process.join()


def _serve(connection: Connection, url: str, views: Sequence[View]) -> None:
    uvloop.run(_look(connection, url, views))


async def _look(connection: Connection, url: str, views: Sequence[View]) -> None:
    """Read everything until `connection` says that it is enough, then tell how much it was."""
    amounts: list[int] = []
    connected: asyncio.Queue[None] = asyncio.Queue()
    async with HttpClient(url, len(views)) as client:
        streams = [path for view in views for path in (*PAGE.streams, *view.streams)]
        polled = [each for view in views for each in (*PAGE.polled, *view.polled)]
        work = [_follow(url, path, amounts, connected) for path in streams]
        work += [_poll(client, path, every, amounts) for path, every in polled]
        tasks = [asyncio.ensure_future(each) for each in work]
        for _ in streams:
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
    url: str, path: str, amounts: list[int], connected: "asyncio.Queue[None]"
) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        _check(path, int(head.split(maxsplit=2)[1]))
        connected.put_nowait(None)
        while part := await reader.read(_AT_ONCE):
            amounts.append(len(part))
    finally:
        writer.close()


async def _poll(client: HttpClient, path: str, every: float, amounts: list[int]) -> None:
    while True:
        reply = await client.call("GET", path)
        _check(path, reply.status)
        amounts.append(len(reply.body))
        await asyncio.sleep(every)


def _check(path: str, status: int) -> None:
    if status != 200:
        raise MeasurementFailed(f"the service answered {status} to GET {path}")
