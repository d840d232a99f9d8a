"""How long requests of a partition wait while the partition moves to another configurator.

One host subscribes with a filter of the partition and unsubscribes, at a fixed rate, whatever the
service does. A request waits from when it was sent until all switches have acknowledged it.
"""

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct

from bench.load.generator import LoadFailed
from bench.load.http_client import HttpClient
from bench.load.probes import Probe
from bench.load.traffic import removal_body, request_body
from bench.report import Row
from bench.workload import HostFilter

EVERY = 0.05  # seconds between two subscriptions
TRIES = 5
BEFORE = 20  # requests that are acknowledged before each move
CONNECTIONS = 64
_HELD = b"dzflow_migration_held_seconds_sum "
_HELD_COUNT = b"dzflow_migration_held_requests_total "


class Wait(NamedTuple):
    """A request: when it was sent, and when it was acknowledged, by one clock."""

    sent: float
    acknowledged: float

    @property
    def ms(self) -> float:
        """How long it took, in milliseconds."""
        return 1e3 * (self.acknowledged - self.sent)


class _Partition(Struct):
    id: str
    configurator: str
    active: int


class _Partitions(Struct):
    items: list[_Partition]


class _Configurator(Struct):
    id: str


class _Configurators(Struct):
    items: list[_Configurator]


class _Record(Struct):
    id: str = ""
    state: str = ""
    detail: str = ""


async def measure_moves(url: str, host: str, probes: Sequence[Probe], moves: int) -> list[Row]:
    """Move partitions with many requests, one after another; a row for each move."""
    rows: list[Row] = []
    async with HttpClient(url, CONNECTIONS) as client:
        names = await _configurators(client)
        candidates = sorted(await _partitions(client), key=lambda each: -each.active)
        for n in range(moves):
            # Each that probes reach, the one with the most requests first.
            reached = [
                (each.id, probe)
                for each in candidates
                if (probe := next((p for p in probes if each.id in p.partitions), None))
            ]
            name, probe = reached[n % len(reached)]
            rows.append(await _measure_move(client, name, names, HostFilter(host, probe.filter)))
    return rows


async def _measure_move(
    client: HttpClient, name: str, configurators: Sequence[str], wanted: HostFilter
) -> Row:
    (before,) = (each for each in await _partitions(client) if each.id == name)
    target = next(each for each in configurators if each != before.configurator)
    held_before, count_before = await _held(client)
    stop, sent = asyncio.Event(), asyncio.Event()
    waits: list[Wait] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(_request_until(stop, client, request_body(wanted), waits, sent))
        while len(waits) < BEFORE:
            await asyncio.sleep(EVERY)
        sent.clear()
        await sent.wait()  # a move may be over before the next request: one is in progress now
        body = msgspec.json.encode({"to": target, "wait": 60})
        began = time.perf_counter()
        tries = 0
        while True:
            tries += 1
            moved = await client.call("POST", f"/partitions/{quote(name, safe='')}/migrate", body)
            if moved.status == 200:
                break
            if tries == TRIES:  # a move is given up if its owner does not stop in time
                raise LoadFailed(f"partition {name} does not move: {moved.body[:300]!r}")
        ended = time.perf_counter()
        stop.set()
    held, count = await _held(client)
    return {
        "partition": name,
        "records": before.active,
        **wait_columns(waits, began, ended),
        "held_ms": 1e3 * (held - held_before),
        "held_requests": count - count_before,
        "move_ms": 1e3 * (ended - began),
        "tries": tries,
    }


async def _request_until(
    stop: asyncio.Event, client: HttpClient, body: bytes, waits: list[Wait], sent: asyncio.Event
) -> None:
    """Begin a subscription at fixed times, and remove each as soon as it is acknowledged.

    `sent` is set with each request.
    """

    async def come_and_go() -> None:
        made = await send("/subscribe", body, "active")
        await send("/unsubscribe", removal_body(made.id), "removed")

    async def send(path: str, body: bytes, state: str) -> _Record:
        began = time.perf_counter()
        sent.set()
        reply = await client.call("POST", path, body)
        record = msgspec.json.decode(reply.body, type=_Record)
        if record.state != state:
            raise LoadFailed(f"{path} was answered {reply.status}: {reply.body[:300]!r}")
        waits.append(Wait(began, time.perf_counter()))
        return record

    due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            group.create_task(come_and_go())
            due += EVERY
            await asyncio.sleep(max(0.0, due - time.perf_counter()))


def wait_columns(waits: Sequence[Wait], began: float, ended: float) -> Row:
    """The waits of requests before a move, and of those that were in progress during the move."""
    usual = [wait.ms for wait in waits if wait.acknowledged < began]
    during = [wait.ms for wait in waits if wait.acknowledged >= began and wait.sent <= ended]
    return {
        "usual_ms": median(usual),
        "usual_longest_ms": max(usual),
        "median_ms": median(during),
        "longest_ms": max(during),
    }


def summary(rows: Sequence[Row]) -> Row:
    """All moves in one row: medians, and the worst."""
    columns = ("records", "usual_ms", "usual_longest_ms", "longest_ms", "held_ms", "move_ms")
    return {
        "moves": len(rows),
        **{name: median(row[name] for row in rows) for name in columns},
        "worst_ms": max(row["longest_ms"] for row in rows),
    }


async def _partitions(client: HttpClient) -> list[_Partition]:
    reply = await client.call("GET", "/partitions")
    return msgspec.json.decode(reply.body, type=_Partitions).items


async def _configurators(client: HttpClient) -> list[str]:
    reply = await client.call("GET", "/configurators")
    return [each.id for each in msgspec.json.decode(reply.body, type=_Configurators).items]


async def _held(client: HttpClient) -> tuple[float, int]:
    """For how long the dispatcher has held back requests of moving partitions, and how many."""
    lines = (await client.call("GET", "/metrics")).body.splitlines()

    def value(name: bytes) -> float:
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    return value(_HELD), int(value(_HELD_COUNT))
