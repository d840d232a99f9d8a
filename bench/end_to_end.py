"""From a REST batch to the barriers of Open vSwitch: acknowledged flow-mods per second.

The limit is a stream to the same switches that was encoded beforehand and does nothing else. The
requests are those of the control plane's benchmark: subscriptions on an empty network first, then
subscriptions and unsubscriptions in equal numbers. Needs root and Open vSwitch.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import NamedTuple

import uvloop

from bench.control import processor_row
from bench.cpu import Cpu
from bench.load import Load, Measured
from bench.report import Report, Row
from bench.service import service
from bench.southbound import raw_stream
from bench.traffic import Traffic
from sdn.topologies import topology

Progress = Callable[[str], None]
BATCH = 100  # flow-mods with one barrier in the raw stream


class Scale(NamedTuple):
    """How much is measured."""

    topologies: tuple[str, ...]
    active: int
    seconds: float  # of subscriptions and unsubscriptions
    raw: int  # flow-mods of the raw stream to each switch
    configurators: int = 2
    partitions: int = 64


FULL = Scale(("fat-tree:10", "fat-tree:102"), 1_000, 20.0, 2_000)
QUICK = Scale(("fat-tree:102",), 1_000, 6.0, 500)


def run(quick: bool, progress: Progress) -> Report:
    """Measure everything; `progress` is told what comes next."""
    scale = QUICK if quick else FULL
    report = Report("end_to_end", {"quick": quick, **scale._asdict(), "raw_batch": BATCH})
    for name in scale.topologies:
        progress(f"{name}: raw stream")
        network = topology(name)
        count = scale.raw * len(network.switches)
        took = asyncio.run(raw_stream(network, BATCH, count))
        report.rows.append(_rate(name, "raw stream", count, took))
        traffic = Traffic("uniform", len(network.hosts))
        traffic.encode(scale.active)
        progress(f"{name}: starting the service")
        with service(
            data_plane="ovs",
            topology=name,
            partitions=scale.partitions,
            configurators=scale.configurators,
        ) as url:
            report.rows += uvloop.run(_load(url, name, scale, traffic, progress))
    report.ratios = ratios(report.rows, scale.topologies[-1])
    return report


async def _load(
    url: str, name: str, scale: Scale, traffic: Traffic, progress: Progress
) -> list[Row]:
    rows: list[Row] = []
    cpu = Cpu()

    def note(what: str, measured: Measured) -> None:
        rate = _rate(name, what, measured.flow_ops, measured.seconds)
        told = {"topology": name, "way": what}
        rows.append(rate)
        rows.append({"measure": "requests", **told, **measured.row()})
        rows.append({"measure": "stages", **told, **measured.stages_row()})
        rows.append({"measure": "processor", **told, **processor_row(cpu.spent(), measured)})

    load = Load(url, traffic)
    await load.prepare()
    progress(f"{name}: {scale.active:,} subscriptions")
    gc.collect()
    gc.freeze()
    cpu.spent()
    filled = await load.fill(scale.active)
    note("subscriptions", filled)
    traffic.encode(int(filled.rate * scale.seconds))
    progress(f"{name}: subscriptions and unsubscriptions")
    cpu.spent()
    churned = await load.saturate(scale.seconds, "batch")
    note("subscriptions and unsubscriptions", churned)
    done, took = filled.flow_ops + churned.flow_ops, filled.seconds + churned.seconds
    rows.append(_rate(name, "all requests", done, took))
    return rows


def _rate(name: str, way: str, count: int, seconds: float) -> Row:
    return {
        "measure": "rate",
        "topology": name,
        "way": way,
        "flow_mods": count,
        "flow_mods_per_s": count / seconds,
    }


def ratios(rows: list[Row], name: str) -> dict[str, float]:
    """What each way reaches of the raw stream's rate, on one topology."""
    rates = {
        row["way"]: row["flow_mods_per_s"]
        for row in rows
        if row["measure"] == "rate" and row["topology"] == name
    }
    raw = rates.pop("raw stream")
    return {
        "share_of_raw_stream": rates.pop("all requests") / raw,
        **{f"share_of_raw_stream_{way.replace(' ', '_')}": r / raw for way, r in rates.items()},
    }
