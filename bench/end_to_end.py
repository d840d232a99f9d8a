"""From a REST batch to the barriers of Open vSwitch: acknowledged flow-mods per second.

The requests are those of the control benchmark: first subscriptions on an empty network, then
subscriptions and unsubscriptions in equal numbers. The limit is a stream to the same switches of
the flow-mods that such requests take, decided and encoded ahead. Beside it there is the stream of
the southbound benchmark: additions to one table with one mask, as many on each switch, which Open
vSwitch carries out about twice as fast. The benchmark needs root and Open vSwitch.
"""

import asyncio
import gc
from typing import NamedTuple

import uvloop

from bench.control import processor_columns
from bench.load.flow_mods import flow_mods
from bench.load.generator import LoadGenerator, LoadResult
from bench.load.traffic import Traffic
from bench.processes.cpu import CpuMeter
from bench.processes.service import running_url
from bench.raw_stream import raw_stream
from bench.report import Progress, Report, Row
from bench.southbound import uniform_flow_mods
from bench.workload import Distribution
from sdn.network.topologies import topology

BATCH = 100  # flow-mods per barrier in the raw stream
CONTENT: Distribution = "uniform"
RAW, UNIFORM = "raw stream", "uniform raw stream"


class Scale(NamedTuple):
    """The extent of the benchmark."""

    topologies: tuple[str, ...]
    active: int
    seconds: float  # of subscriptions and unsubscriptions
    requests: int  # whose flow-mods are streamed, besides the active ones
    raw: int  # flow-mods of the uniform stream to each switch
    configurators: int = 2
    partitions: int = 64


FULL = Scale(("fat-tree:10", "fat-tree:102"), 1_000, 20.0, 20_000, 2_000)
QUICK = Scale(("fat-tree:102",), 1_000, 6.0, 8_000, 500)


def run(quick: bool, progress: Progress) -> Report:
    """Run all measurements. `progress` is called with the name of each step."""
    scale = QUICK if quick else FULL
    report = Report("end_to_end", {"quick": quick, **scale._asdict(), "raw_batch": BATCH})
    for name in scale.topologies:
        progress(f"{name}: raw stream")
        network = topology(name)
        names = [switch.id for switch in network.switches]
        streams = {
            RAW: flow_mods(network, CONTENT, scale.active, scale.requests, scale.partitions),
            UNIFORM: uniform_flow_mods(scale.raw * len(names), names),
        }
        for what, ops in streams.items():
            took = asyncio.run(raw_stream(network, ops, BATCH))
            report.rows.append(_rate_row(name, what, sum(map(len, ops.values())), took))
        traffic = Traffic(CONTENT, len(network.hosts))
        traffic.encode_ahead(scale.active)
        progress(f"{name}: starting the service")
        with running_url(
            data_plane="ovs",
            topology=name,
            partitions=scale.partitions,
            configurators=scale.configurators,
        ) as url:
            report.rows += uvloop.run(_measure_load(url, name, scale, traffic, progress))
    report.ratios = ratios(report.rows, scale.topologies[-1])
    return report


async def _measure_load(
    url: str, name: str, scale: Scale, traffic: Traffic, progress: Progress
) -> list[Row]:
    rows: list[Row] = []
    cpu = CpuMeter()

    def add_rows(what: str, result: LoadResult) -> None:
        columns = {"topology": name, "traffic": what}
        rows.append(_rate_row(name, what, result.flow_ops, result.seconds))
        rows.append({"measure": "requests", **columns, **result.columns()})
        rows.append({"measure": "stages", **columns, **result.stage_columns()})
        rows.append({"measure": "processor", **columns, **processor_columns(cpu.read(), result)})

    load = LoadGenerator(url, traffic)
    await load.prepare()
    progress(f"{name}: {scale.active:,} subscriptions")
    gc.collect()
    gc.freeze()
    cpu.read()
    filled = await load.fill(scale.active)
    add_rows("subscriptions", filled)
    traffic.encode_ahead(int(filled.rate * scale.seconds))
    progress(f"{name}: subscriptions and unsubscriptions")
    cpu.read()
    churned = await load.saturate(scale.seconds, "batch")
    add_rows("subscriptions and unsubscriptions", churned)
    operations, seconds = filled.flow_ops + churned.flow_ops, filled.seconds + churned.seconds
    rows.append(_rate_row(name, "all requests", operations, seconds))
    return rows


def _rate_row(topology_name: str, traffic: str, count: int, seconds: float) -> Row:
    return {
        "measure": "rate",
        "topology": topology_name,
        "traffic": traffic,
        "flow_mods": count,
        "flow_mods_per_s": count / seconds,
    }


def ratios(rows: list[Row], name: str) -> dict[str, float]:
    """The rate of each traffic over the rates of the raw streams, on one topology."""
    rates = {
        row["traffic"]: row["flow_mods_per_s"]
        for row in rows
        if row["measure"] == "rate" and row["topology"] == name
    }
    raw, uniform, all_requests = (rates.pop(each) for each in (RAW, UNIFORM, "all requests"))
    return {
        "share_of_raw_stream": all_requests / raw,
        "share_of_uniform_raw_stream": all_requests / uniform,
        **{
            f"share_of_raw_stream_{traffic.replace(' ', '_')}": r / raw
            for traffic, r in rates.items()
        },
    }
