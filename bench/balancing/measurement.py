"""One measurement: a service, a random first assignment, some seconds of load."""

import asyncio
import time
from random import Random
from typing import NamedTuple
from urllib.parse import quote

import msgspec
import uvloop
from msgspec import Struct

from bench.balancing.cases import Case, Scale
from bench.load.arrivals import arrival_times
from bench.load.generator import CONNECTIONS, LoadFailed, LoadGenerator
from bench.load.http_client import HttpClient
from bench.load.traffic import Traffic
from bench.processes.components import read_status
from bench.processes.service import running_url
from bench.report import Row
from sdn.network.topologies import topology

_READY = 60.0  # seconds until all parts of a service work
_POLL = 0.1
_MOVES_AT_ONCE = 8
_ASSIGNED = 120.0  # seconds until all partitions are assigned; moves may fail on a busy machine
_CONFLICT = 409
_SEED = 1


class _Configurator(Struct):
    id: str


class _Configurators(Struct):
    items: list[_Configurator]


class Migrations(NamedTuple):
    """How many partitions have moved, and how many requests were held back meanwhile."""

    moves: float
    held: float


def measure(case: Case, scale: Scale) -> Row:
    """Start a service, and measure its latency under load."""
    with running_url(**case.settings(scale.topology)) as url:
        row = uvloop.run(_measure(url, case, scale))
    return {"measure": case.section, **case.columns, **row}


async def _measure(url: str, case: Case, scale: Scale) -> Row:
    hosts = len(topology(scale.topology).hosts)
    traffic = Traffic(case.content, hosts, plan=case.plan)
    settle = scale.settle * case.kind.time
    seconds = settle + scale.seconds * case.kind.time
    expected = scale.burst if case.is_burst else round(case.kind.rate * seconds / 2) + 1
    traffic.encode_ahead(scale.active + expected)
    connections = scale.burst if case.is_burst else CONNECTIONS
    load = LoadGenerator(url, traffic, connections=connections)
    await load.prepare()
    async with HttpClient(url, _MOVES_AT_ONCE) as client:
        await wait_until_whole(client)
        if "SNA" in case.system and case.configurators > 1:
            await assign_randomly(client, Random(_SEED))
        if not case.is_burst:
            await load.fill(scale.active)
        before = read_migrations(await _metrics(client))
    if case.is_burst:
        at_once = [0.0] * scale.burst
        result = await load.send_arrivals(at_once, case.kind.calls, removals=False)
    else:
        arrivals = arrival_times("poisson", case.kind.rate, seconds)
        result = await load.send_arrivals(arrivals, case.kind.calls, skip=settle)
    async with HttpClient(url, 1) as client:
        after = read_migrations(await _metrics(client))
    moves = after.moves - before.moves
    return {
        **result.columns(),
        "moves": moves,
        "held_per_move": (after.held - before.held) / moves if moves else None,
    }


async def wait_until_whole(client: HttpClient) -> None:
    """Return when all parts of a service work."""
    async with asyncio.timeout(_READY):
        while not (await read_status(client)).whole:
            await asyncio.sleep(_POLL)


async def assign_randomly(client: HttpClient, random: Random) -> None:
    """Move each partition to a configurator drawn at random, as the thesis assigns them first."""
    there = await client.call("GET", "/configurators")
    names = [each.id for each in msgspec.json.decode(there.body, type=_Configurators).items]
    first = (await read_status(client)).partitions
    wanted = {name: random.choice(sorted(names)) for name in sorted(part.id for part in first)}
    refused: list[str] = []
    deadline = time.monotonic() + _ASSIGNED
    while time.monotonic() < deadline:
        owners = {part.id: part.configurator for part in (await read_status(client)).partitions}
        left = [(name, to) for name, to in wanted.items() if owners.get(name) != to]
        if owners and not left:
            return
        await asyncio.gather(*(_move(client, left, refused) for _ in range(_MOVES_AT_ONCE)))
        await asyncio.sleep(_POLL)
    why = refused[-1] if refused else "the service does not say who owns them"
    raise LoadFailed(f"the partitions cannot be assigned at random: {why}")


async def _move(client: HttpClient, left: list[tuple[str, str]], refused: list[str]) -> None:
    """Move partitions until none is left; those that cannot move now stay where they are."""
    while left:
        name, owner = left.pop()
        path = f"/partitions/{quote(name, safe='')}/migrate"
        reply = await client.call("POST", path, msgspec.json.encode({"to": owner}))
        if reply.status == _CONFLICT:
            refused.append(f"partition {name} does not move: {reply.body[:300]!r}")
        elif reply.status not in (200, 202):
            raise LoadFailed(f"partition {name} does not move: {reply.body[:300]!r}")


async def _metrics(client: HttpClient) -> str:
    return (await client.call("GET", "/metrics")).body.decode()


def read_migrations(metrics: str) -> Migrations:
    """The migrations in a page of metrics."""
    return Migrations(
        _value(metrics, 'dzflow_migrations_total{outcome="done"}'),
        _value(metrics, "dzflow_migration_held_requests_total"),
    )


def _value(metrics: str, name: str) -> float:
    for line in metrics.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split(" ")[1])
    return 0.0
