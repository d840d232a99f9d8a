"""The time from the kill of a component to full service, with many active subscriptions.

Before that, how long requests wait while their partition moves; see `bench/migration.py`.

Probes go into every partition all the time. Some are in progress when the component is killed,
others are sent right after. Service has resumed when probes are acknowledged in every partition
that the component served. The service is whole when it reports that all partitions are ready
(reconciled with the switches) and all switches are up. Everything shares the machine.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import uvloop

from api.start.up import Service
from bench.control import KINDS
from bench.load.generator import LoadFailed, LoadGenerator
from bench.load.http_client import HttpClient
from bench.load.probes import Prober, ProbeResult
from bench.load.traffic import Traffic
from bench.migration import measure_moves, summary
from bench.processes.components import COMPONENTS, Component, ComponentName, Status, read_status
from bench.processes.cpu import CpuMeter
from bench.processes.service import running_service
from bench.report import Progress, Report, Row
from sdn.network.topologies import topology

Mode = Literal["sna", "sea"]

LIMIT = 600.0  # seconds until a component has to be back
POLL = 0.1  # seconds between two readings of the status
PROBE_EVERY = 0.25  # seconds between two rounds of probes after the kill
ROUNDS_BEFORE = 3  # rounds of probes before the kill
SECTIONS = ("kills", "moves")  # for --only
PROBE_PORT = 40  # the first probing host's port; the second host has the next one


class Scale(NamedTuple):
    """The extent of the benchmark."""

    active: tuple[int, ...]  # subscriptions, in ascending order
    components: tuple[ComponentName, ...] = COMPONENTS
    modes: tuple[Mode, ...] = ("sna",)
    configurators: int = 2
    topology: str = "fat-tree:102"
    partitions: int = 64
    reference: int = 10_000  # active subscriptions, for the ratios
    moves: int = 20  # of partitions, at each number of subscriptions


FULL = Scale((1_000, 10_000, 100_000), modes=("sna", "sea"))
# Killing Ray or its head takes as long as all other components together.
QUICK = Scale(
    (10_000,),
    tuple(each for each in COMPONENTS if each not in ("ray_head", "workers")),
    moves=5,
)


def run(quick: bool, progress: Progress, only: Collection[str] = ()) -> Report:
    """Measure everything, or some sections. `progress` is called with the name of each step."""
    scale = QUICK if quick else FULL
    report = Report("recovery", {"quick": quick, **scale._asdict()})
    sections = frozenset(only or SECTIONS)
    for mode in scale.modes:
        if mode == "sea" and sections == {"moves"}:
            continue  # nothing moves there
        progress(f"{mode}: starting")
        with running_service(
            mode=mode,
            topology=scale.topology,
            partitions=scale.partitions,
            configurators=scale.configurators,
        ) as service:
            report.rows += uvloop.run(_measure(service, scale, mode, sections, progress))
    report.ratios = ratios(report.rows, scale.reference)
    return report


def combined(earlier: Report, now: Report) -> Report:
    """The results of `now`, and those of the sections that only `earlier` has."""
    measured = {row["measure"] for row in now.rows}
    now.rows = [row for row in earlier.rows if row["measure"] not in measured] + now.rows
    now.ratios = earlier.ratios | now.ratios
    return now


async def _measure(
    service: Service, scale: Scale, mode: Mode, sections: Collection[str], progress: Progress
) -> list[Row]:
    rows: list[Row] = []
    traffic = Traffic("uniform", len(topology(scale.topology).hosts))
    load = LoadGenerator(service.url, traffic)
    await load.prepare()
    probers = await _make_probers(service.url)
    for active in scale.active:
        progress(f"{mode}: {active:,} subscriptions")
        await load.fill(active)
        if "moves" in sections and mode == "sna":
            progress(f"{mode}: {active:,} subscriptions, moves of partitions")
            prober = probers[0]
            moves = await measure_moves(service.url, prober.host, prober.probes, scale.moves)
            rows.append({"measure": "moves", "active": active, **summary(moves)})
            rows += [{"measure": "move", "active": active, **row} for row in moves]
        for component in scale.components if "kills" in sections else ():
            progress(f"{mode}: {active:,} subscriptions, {component}")
            columns = {"mode": mode, "active": active, "component": component}
            row, spent = await _measure_kill(service, component, probers)
            rows.append({"measure": "recovery", **columns, **row})
            rows.append({"measure": "processor", **columns, **spent})
    return rows


async def _make_probers(url: str) -> tuple[Prober, Prober]:
    """Two hosts that only probe, with probes for the same partitions."""
    async with HttpClient(url, 1) as client:
        hosts = await client.call("GET", "/hosts")
        switches = [host["switch"] for host in msgspec.json.decode(hosts.body)["items"]]
        names = ("probe1", "probe2")
        for n, (name, switch) in enumerate(zip(names, reversed(switches), strict=False)):
            body = msgspec.json.encode({"switch": switch, "port": PROBE_PORT + n})
            created = await client.call("PUT", f"/hosts/{name}", body)
            if created.status != 201:
                raise LoadFailed(f"the service refuses host {name}: {created.body[:300]!r}")
    first, second = (Prober(url, name) for name in names)
    await first.find_probes()
    second.probes = first.probes
    return first, second


async def _measure_kill(
    service: Service, name: ComponentName, probers: tuple[Prober, Prober]
) -> tuple[Row, Row]:
    """Kill a component under probes, and wait until the service is whole again.

    Returns the times of the recovery, and the processor time of each kind of process meanwhile.
    """
    async with HttpClient(service.url, 1) as client, asyncio.timeout(LIMIT):
        component = Component(service, name, await _wait_until_whole(client))
        stop = asyncio.Event()
        early, late = probers  # `late` begins with the kill
        for prober in probers:
            prober.results.clear()
            prober.retries.clear()
        early.pause, late.pause = 0.0, PROBE_EVERY
        async with asyncio.TaskGroup() as group:
            group.create_task(early.probe_until(stop))
            while len(early.results) < 2 * ROUNDS_BEFORE * len(early.probes):
                await asyncio.sleep(POLL)
            early.pause = PROBE_EVERY
            usual = median(each.acknowledged - each.sent for each in early.results)
            cpu = CpuMeter()
            early.round_began.clear()
            await early.round_began.wait()
            await asyncio.sleep(usual / 4)
            killed = time.time()
            component.kill()
            group.create_task(late.probe_until(stop))
            starting = group.create_task(_wait_until_restarted(component))
            stages = await _wait_for_recovery(client, component, killed, probers)
            spent = cpu.read()
            starting.cancel()
            stop.set()
    started = None if starting.cancelled() else starting.result() - killed
    row = {
        **service_columns([*early.results, *late.results], component.serves, killed),
        "started_s": started,
        **stages,
        "repeated": (early.retries + late.retries).total(),
    }
    return row, {f"{kind}_s": spent.get(kind, 0.0) for kind in KINDS}


async def _wait_until_whole(client: HttpClient) -> Status:
    while not (status := await read_status(client)).whole:
        await asyncio.sleep(POLL)
    return status


async def _wait_until_restarted(component: Component) -> float:
    while (at := component.restarted_at()) is None:
        await asyncio.sleep(POLL / 4)
    return at


async def _wait_for_recovery(
    client: HttpClient, component: Component, killed: float, probers: Sequence[Prober]
) -> dict[str, float | None]:
    """Poll until the service is whole; returns the seconds from the kill to each stage."""
    claimed: float | None = None
    whole: float | None = None
    while whole is None or any(p.last_round_began < killed for p in probers):
        await asyncio.sleep(POLL)
        status = await read_status(client)
        now = time.time() - killed
        if claimed is None and component.moves_partitions and component.claimed(status):
            claimed = now
        if not (status.whole and component.replaced(status)):
            whole = None  # the service may seem whole for a moment, before it notices the kill
        elif whole is None:
            whole = now
    return {"claimed_s": claimed, "whole_s": whole}


def service_columns(results: Sequence[ProbeResult], serves: set[str], killed: float) -> Row:
    """The times at which partitions of the killed component acknowledged probes again."""
    usual = [
        1e3 * (each.acknowledged - each.sent) for each in results if each.acknowledged < killed
    ]
    resumed: dict[str, float] = {}  # by partition
    waits_after: list[float] = []  # of probes sent after the kill
    waits_in_progress: list[float] = []  # of probes in progress at the kill
    for each in results:
        if each.acknowledged < killed or not serves.intersection(each.partitions):
            continue
        wait = each.acknowledged - max(each.sent, killed)
        (waits_in_progress if each.sent < killed else waits_after).append(wait)
        if each.sent >= killed:
            for name in serves.intersection(each.partitions):
                resumed[name] = min(each.acknowledged - killed, resumed.get(name, LIMIT))
    return {
        "partitions": len(serves),
        "probed": len(resumed),
        "usual_ms": median(usual),
        "first_s": min(resumed.values()),
        "resumed_s": max(resumed.values()),
        "in_progress_s": max(waits_in_progress, default=None),
        "longest_wait_s": max(waits_after + waits_in_progress),
    }


def ratios(rows: Sequence[Row], active: int) -> dict[str, float]:
    """The time to take over from a configurator, in each mode, and to wait for a move."""
    found = {}
    for row in rows:
        if row["measure"] == "moves" and row["active"] == active:
            found["move_wait_ms"] = row["longest_ms"]
        if (
            row["measure"] == "recovery"
            and row["component"] == "configurator"
            and row["active"] == active
        ):
            name = "takeover" if row["mode"] == "sna" else f"takeover_{row['mode']}"
            found[f"{name}_s"] = max(row["resumed_s"], row["in_progress_s"] or 0.0)
            found[f"{name}_read_back_s"] = row["whole_s"]
    return found
