"""A plan on a running service: latency and load under equal cuts, with the balancer, with the plan.

The load is Zipf around eight hotspots, and configurators are those of the thesis, which wait for
switches most of the time; see `bench/balancing/cases.py`. The plan is made by `rebalance` from the
traces of the service itself, and the service carries it out.
"""

import asyncio
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import uvloop

from bench.balancing.cases import SYSTEMS, THESIS, ConfiguratorKind, SystemName
from bench.balancing.measurement import wait_until_whole
from bench.load.arrivals import arrival_times
from bench.load.generator import LoadFailed, LoadGenerator, LoadResult
from bench.load.http_client import HttpClient
from bench.load.traffic import SPACE, Traffic
from bench.processes.service import running_url
from bench.report import Progress, Row
from bench.trace_jobs.children import run_measured
from bench.trace_jobs.equal_maps import equal_map
from bench.trace_jobs.jobs import COMMAND
from bench.trace_jobs.pool import owners_in_turn
from bench.workload import make_index, make_space
from sdn.network.topologies import topology

BEFORE = "equal cuts"
BALANCED = "equal cuts, balancer"
PLANNED = "plan of rebalance"
_PLAN_SECONDS = 300.0
_POLL = 0.2


class ServiceScale(NamedTuple):
    """The service, and the load on it."""

    configurators: int = 4
    partitions: int = 27
    kind: ConfiguratorKind = THESIS
    rate: int = 60  # requests per second
    active: int = 300  # subscriptions before the load begins
    settle: float = 12.0  # seconds of load that are not measured: the balancer acts
    seconds: float = 20.0  # of load that are measured
    topology: str = "fat-tree:102"


class _Load(NamedTuple):
    """The result of some load, and when it was measured, in microseconds since 1970."""

    result: LoadResult
    begin_us: int
    end_us: int


def measure_service(scale: ServiceScale, progress: Progress) -> list[Row]:
    """Latency and imbalance in each case; services run one after another."""
    traffic = _new_traffic(scale)
    with TemporaryDirectory(prefix="dzflow-bench-") as name:
        data = Path(name)
        progress(f"service: {BEFORE}")
        with running_url(data_dir=data, **_settings(scale, "SNA")) as url:
            before = uvloop.run(_begin(url, scale, traffic))
        # A service that stops completes its files of traces.
        rows = [_row(BEFORE, scale, before, data)]
        progress(f"service: {PLANNED}")
        with running_url(data_dir=data, **_settings(scale, "SNA")) as url:
            uvloop.run(_wait(url))
            where = ["--space", SPACE, "--apply", "--wait", "--url", url]
            result = data / "rebalance.json"
            run_measured([COMMAND, "trace", "rebalance", data, *where, "--json", result])
            after = uvloop.run(_send(url, scale, traffic))
            partitions = uvloop.run(_count_partitions(url))
        rows.append(_row(PLANNED, scale._replace(partitions=partitions), after, data))
    with TemporaryDirectory(prefix="dzflow-bench-") as name:
        data = Path(name)
        progress(f"service: {BALANCED}")
        with running_url(data_dir=data, **_settings(scale, "SNA-LB")) as url:
            balanced = uvloop.run(_begin(url, scale, _new_traffic(scale)))
        rows.append(_row(BALANCED, scale, balanced, data))
    return rows


def _settings(scale: ServiceScale, system: SystemName) -> dict[str, Any]:
    return {
        "topology": scale.topology,
        "configurators": scale.configurators,
        "partitions": scale.partitions,
        **scale.kind.settings(),
        **SYSTEMS[system],
    }


def _new_traffic(scale: ServiceScale) -> Traffic:
    return Traffic("zipf", len(topology(scale.topology).hosts))


async def _begin(url: str, scale: ServiceScale, traffic: Traffic) -> _Load:
    """Create the space, cut it into equal parts, and send the load."""
    load = LoadGenerator(url, traffic)
    await load.prepare()
    async with HttpClient(url, 1) as client:
        await wait_until_whole(client)
        await _cut_equally(client, scale)
    await load.fill(scale.active)
    return await _send(url, scale, traffic)


async def _send(url: str, scale: ServiceScale, traffic: Traffic) -> _Load:
    seconds = scale.settle + scale.seconds
    traffic.encode_ahead(round(scale.rate * seconds / 2) + 1)
    arrivals = arrival_times("poisson", scale.rate, seconds)
    begin = time.time() + scale.settle
    load = LoadGenerator(url, traffic)
    result = await load.send_arrivals(arrivals, scale.kind.calls, skip=scale.settle)
    return _Load(result, round(begin * 1e6), round(time.time() * 1e6))


async def _wait(url: str) -> None:
    async with HttpClient(url, 1) as client:
        await wait_until_whole(client)


async def _cut_equally(client: HttpClient, scale: ServiceScale) -> None:
    """Have the space cut into equal partitions, which belong to the configurators in turn."""
    there = await _read(client, "/configurators")
    names = sorted(each["id"] for each in there["items"])
    maps = (await _read(client, "/partitions"))["maps"]
    (present,) = [each for each in maps if each["space"] == SPACE]
    wanted = equal_map(make_index(make_space("fields")), "legs", scale.partitions)
    plan = {**present, "map": wanted, "assignment": owners_in_turn(wanted, names)}
    reply = await client.call("POST", "/partitions/plan", msgspec.json.encode(plan))
    if reply.status not in (200, 202):
        raise LoadFailed(f"the service refuses equal cuts: {reply.body[:300]!r}")
    async with asyncio.timeout(_PLAN_SECONDS):
        while True:
            plans = (await _read(client, "/partitions/plan"))["items"]
            (found,) = [each for each in plans if each["space"] == SPACE]
            if not found["running"]:
                break
            await asyncio.sleep(_POLL)
    if found["phase"] != "done":
        raise LoadFailed(f"the service does not cut the space equally: {found['text']}")


async def _count_partitions(url: str) -> int:
    async with HttpClient(url, 1) as client:
        items = (await _read(client, "/partitions"))["items"]
    return sum(each["space"] == SPACE for each in items)


async def _read(client: HttpClient, path: str) -> Any:
    return msgspec.json.decode((await client.call("GET", path)).body)


def _row(case: str, scale: ServiceScale, load: _Load, data: Path) -> Row:
    return {
        "measure": "service",
        "case": case,
        "configurators": scale.configurators,
        "partitions": scale.partitions,
        "rate": scale.rate,
        "imbalance": traced_imbalance(data, scale.configurators, load.begin_us, load.end_us),
        **load.result.columns(),
    }


def traced_imbalance(data: Path, configurators: int, begin_us: int, end_us: int) -> float:
    """The partials of the busiest configurator over the mean, of requests that came in a time."""
    counts: Counter[str] = Counter()
    for file in sorted((data / "traces" / "requests").glob("[!.]*.parquet")):
        rows = pq.read_table(file, columns=["configurator", "received_us"])
        came = rows["received_us"]
        inside = pc.and_(pc.greater_equal(came, begin_us), pc.less(came, end_us))
        counts.update(rows.filter(inside)["configurator"].to_pylist())
    if not counts:
        raise LoadFailed("the service has written no traces of the load")
    return max(counts.values()) * configurators / counts.total()


def service_ratios(rows: list[Row]) -> dict[str, float]:
    """Measured latency and imbalance with the plan, over those of the other cases."""
    by_case = {row["case"]: row for row in rows if row["measure"] == "service"}
    found: dict[str, float] = {}
    for name, case in (("before", BEFORE), ("balancer", BALANCED)):
        if PLANNED in by_case and case in by_case:
            for figure, column in (("latency", "mean_ms"), ("imbalance", "imbalance")):
                ratio = by_case[PLANNED][column] / by_case[case][column]
                found[f"measured_{figure}_after_over_{name}"] = ratio
    return found
