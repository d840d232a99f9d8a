"""From the kill of a component to full service again, with many active subscriptions.

Probes go into every partition all the time: some are under way when the component is killed, others
are sent right after. Service has resumed when these are acknowledged in every partition that the
component served; the service is whole when it says so itself: partitions ready (what they should
have was compared with the switches), all switches up. Everything shares the machine.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import uvloop

from api.start.settings import BadSettings
from api.start.settings_sources import load as load_settings
from api.start.up import Service
from bench.calls import Client
from bench.control import KINDS
from bench.cpu import Cpu
from bench.load import Load, LoadFailed
from bench.probes import Lane, Seen
from bench.report import Report, Row
from bench.service import running
from bench.traffic import Traffic
from bench.victims import COMPONENTS, Component, Status, Victim, ask
from sdn.topologies import topology

Progress = Callable[[str], None]
Mode = Literal["sna", "sea"]

LIMIT = 600.0  # seconds that a component may take to come back
LOOK = 0.1  # seconds between two looks at how the service is
PACE = 0.25  # seconds between two turns of probes after the kill
USUAL = 3  # turns of probes before it
PROBE_PORT = 40  # of a switch, and the next one, for the hosts that only probe


class Scale(NamedTuple):
    """How much is measured."""

    active: tuple[int, ...]  # subscriptions, growing
    components: tuple[Component, ...] = COMPONENTS
    modes: tuple[Mode, ...] = ("sna",)
    configurators: int = 2
    topology: str = "fat-tree:102"
    partitions: int = 64
    reference: int = 10_000  # active subscriptions, for the ratios


FULL = Scale((1_000, 10_000, 100_000), modes=("sna", "sea"))
# Without Ray, its head or as a whole, which takes as long as all of the others.
QUICK = Scale((10_000,), tuple(each for each in COMPONENTS if each not in ("ray_head", "workers")))


def run(quick: bool, progress: Progress) -> Report:
    """Measure everything; `progress` is told what comes next."""
    scale = QUICK if quick else FULL
    scale = scale._replace(modes=tuple(mode for mode in scale.modes if _accepted(mode)))
    report = Report("recovery", {"quick": quick, **scale._asdict()})
    for mode in scale.modes:
        progress(f"{mode}: starting")
        with running(
            mode=mode,
            topology=scale.topology,
            partitions=scale.partitions,
            configurators=scale.configurators,
        ) as service:
            said = lambda what, mode=mode: progress(f"{mode}: {what}")  # noqa: E731
            report.rows += uvloop.run(_measure(service, scale, mode, said))
    report.ratios = ratios(report.rows, scale.reference)
    return report


def _accepted(mode: Mode) -> bool:
    try:
        load_settings(options={"mode": mode}, environment={})
    except BadSettings:
        return False
    return True


async def _measure(service: Service, scale: Scale, mode: Mode, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    traffic = Traffic("uniform", len(topology(scale.topology).hosts))
    load = Load(service.url, traffic)
    await load.prepare()
    lanes = await _lanes(service.url)
    for active in scale.active:
        progress(f"{active:,} subscriptions")
        await load.fill(active)
        for component in scale.components:
            progress(f"{active:,} subscriptions, {component}")
            told = {"mode": mode, "active": active, "component": component}
            row, spent = await _kill(service, component, lanes)
            rows.append({"measure": "recovery", **told, **row})
            rows.append({"measure": "processor", **told, **spent})
    return rows


async def _lanes(url: str) -> tuple[Lane, Lane]:
    """Hosts that only probe, with probes for the same partitions."""
    async with Client(url, 1) as client:
        found = await client.call("GET", "/hosts")
        switches = [host["switch"] for host in msgspec.json.decode(found.body)["items"]]
        names = ("probe1", "probe2")
        for n, (name, switch) in enumerate(zip(names, reversed(switches), strict=False)):
            put = msgspec.json.encode({"switch": switch, "port": PROBE_PORT + n})
            made = await client.call("PUT", f"/hosts/{name}", put)
            if made.status != 201:
                raise LoadFailed(f"host {name} is refused: {made.status} {made.body[:300]!r}")
    first, second = (Lane(url, name) for name in names)
    await first.find_probes()
    second.probes = first.probes
    return first, second


async def _kill(
    service: Service, component: Component, lanes: tuple[Lane, Lane]
) -> tuple[Row, Row]:
    """Kill a component under probes and wait until everything is as it was.

    Gives how long that took, and the processor time of each kind of process meanwhile.
    """
    async with Client(service.url, 1) as client, asyncio.timeout(LIMIT):
        victim = Victim(service, component, await _whole(client))
        stop = asyncio.Event()
        under_way, fresh = lanes
        for lane in lanes:
            lane.seen.clear()
            lane.troubles.clear()
        under_way.pause, fresh.pause = 0.0, PACE
        async with asyncio.TaskGroup() as group:
            group.create_task(under_way.take_turns(stop))
            while len(under_way.seen) < 2 * USUAL * len(under_way.probes):
                await asyncio.sleep(LOOK)
            under_way.pause = PACE
            usual = median(each.acknowledged - each.sent for each in under_way.seen)
            cpu = Cpu()
            under_way.asking.clear()
            await under_way.asking.wait()
            await asyncio.sleep(usual / 4)
            killed = time.time()
            victim.kill()
            group.create_task(fresh.take_turns(stop))
            starting = group.create_task(_started(victim))
            stages = await _watch(client, victim, killed, lanes)
            spent = cpu.spent()
            starting.cancel()
            stop.set()
    started = None if starting.cancelled() else starting.result() - killed
    row = {
        **service_row([*under_way.seen, *fresh.seen], victim.serves, killed),
        "started_s": started,
        **stages,
        "repeated": (under_way.troubles + fresh.troubles).total(),
    }
    return row, {f"{kind}_s": spent.get(kind, 0.0) for kind in KINDS}


async def _whole(client: Client) -> Status:
    while not (status := await ask(client)).whole:
        await asyncio.sleep(LOOK)
    return status


async def _started(victim: Victim) -> float:
    while (at := victim.started()) is None:
        await asyncio.sleep(LOOK / 4)
    return at


async def _watch(
    client: Client, victim: Victim, killed: float, lanes: Sequence[Lane]
) -> dict[str, float | None]:
    """Look until everything is as it was; gives when each stage was over."""
    claimed: float | None = None
    whole: float | None = None
    while whole is None or any(lane.turn < killed for lane in lanes):
        await asyncio.sleep(LOOK)
        status = await ask(client)
        now = time.time() - killed
        if claimed is None and victim.moves and victim.claimed(status):
            claimed = now
        if not (status.whole and victim.replaced(status)):
            whole = None  # it may be whole for a moment before all of it is known
        elif whole is None:
            whole = now
    return {"claimed_s": claimed, "whole_s": whole}


def service_row(seen: Sequence[Seen], serves: set[str], killed: float) -> Row:
    """When probes were acknowledged again in the partitions that the killed component served."""
    usual = [1e3 * (each.acknowledged - each.sent) for each in seen if each.acknowledged < killed]
    again: dict[str, float] = {}
    started: list[float] = []
    under_way: list[float] = []
    for each in seen:
        if each.acknowledged < killed or not serves.intersection(each.partitions):
            continue
        wait = each.acknowledged - max(each.sent, killed)
        (under_way if each.sent < killed else started).append(wait)
        if each.sent >= killed:
            for name in serves.intersection(each.partitions):
                again[name] = min(each.acknowledged - killed, again.get(name, LIMIT))
    return {
        "partitions": len(serves),
        "probed": len(again),
        "usual_ms": median(usual),
        "first_s": min(again.values()),
        "resumed_s": max(again.values()),
        "under_way_s": max(under_way, default=None),
        "longest_wait_s": max(started + under_way),
    }


def ratios(rows: Sequence[Row], active: int) -> dict[str, float]:
    """How long it takes to take over from a configurator, in each mode."""
    found = {}
    for row in rows:
        if (
            row["measure"] == "recovery"
            and row["component"] == "configurator"
            and row["active"] == active
        ):
            name = "takeover" if row["mode"] == "sna" else f"takeover_{row['mode']}"
            found[f"{name}_s"] = max(row["resumed_s"], row["under_way_s"] or 0.0)
            found[f"{name}_read_back_s"] = row["whole_s"]
    return found
