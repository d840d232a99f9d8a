"""Drives a service for long: `python -m tests.soak.run --minutes 60 --mode sna`.

Reports memory, disk and latency over time, and whether they stay flat from the tenth minute on. The
exit code is 1 if one of them gets worse, or if a call got no answer.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop
from msgspec import Struct
from rich.console import Console

from api.start.up import Service
from bench.load.arrivals import arrival_times
from bench.load.generator import LoadFailed, LoadGenerator, LoadResult
from bench.load.http_client import CallFailed
from bench.load.traffic import Traffic
from bench.processes.service import running_service
from sdn.network.topologies import topology
from tests.soak.flatness import Verdict
from tests.soak.report import Series, all_series, minute_table, verdict_table, verdicts, write
from tests.soak.sampling import Sample, Sampler

# Requests wait instead of being refused, as in the benchmarks. Whatever is kept reaches its limits
# within ten minutes, at low rates, too, so that the run shows that these hold.
SETTINGS: dict[str, dict[str, Any]] = {
    "limits": {"queue": 200_000, "wait": 120.0, "traces": 16 << 20},
    "keep": {"key_s": 600.0, "finished_s": 300.0},
    "log": {"size": 1 << 20},
}
_console = Console(highlight=False, width=220)


class Options(Struct, frozen=True):
    """How long, and on which service."""

    minutes: float = 60.0
    every: float = 10.0  # seconds between samples
    active: int = 5_000
    keyed: float = 0.2  # share of calls with an idempotency key
    batch: int = 250  # requests per call, at full rate
    rate: float = 0.0  # requests per second; 0: full rate
    settings: dict[str, Any] = {}
    topology: str = "fat-tree:102"


Say = Callable[[str], None]


def main() -> None:
    """Run the command line."""
    given = _arguments().parse_args()
    options = Options(
        minutes=given.minutes,
        every=given.every,
        active=given.active,
        keyed=given.keyed,
        rate=given.rate,
        topology=given.topology,
        settings={
            "mode": given.mode,
            "configurators": given.configurators,
            "partitions": given.partitions,
            **nested(given.option),
        },
    )
    name = f"{given.mode}-{given.active}" + (f"-{given.rate:g}" if given.rate else "")
    folder = Path(given.folder or f"build/soak/{name}")
    samples = soak(options, folder, given.begin, _console.print)
    found = verdicts(all_series(samples), given.begin, given.tolerance)
    _console.print(minute_table(samples))
    _console.print(verdict_table(found))
    _console.print(f"samples and a plot are in {folder}")
    sys.exit(exit_code(found, samples))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60.0)
    add("--mode", choices=("sna", "sea"), default="sna")
    add("--active", type=int, default=5_000, help="subscriptions that are active all the time")
    add("--keyed", type=float, default=0.2, help="share of calls with an idempotency key")
    add("--rate", type=float, default=0.0, help="requests per second; default: full rate")
    add("--every", type=float, default=10.0, help="seconds between samples")
    add("--begin", type=float, default=10.0, help="the minute from which on series must be flat")
    add("--tolerance", type=float, default=0.05, help="share by which a flat series may change")
    add("--topology", default="fat-tree:102")
    add("--partitions", type=int, default=64)
    add("--configurators", type=int, default=2)
    add("--option", action="append", default=[], help="a setting, such as limits.traces=1000000")
    add("--folder", help="for samples and the plot; default: build/soak/MODE-ACTIVE-RATE")
    return parser


def nested(given: Sequence[str]) -> dict[str, Any]:
    """Settings as `load` takes them, from texts such as `etcd.quota=8`."""
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        *sections, last = name.split(".")
        at = found
        for section in sections:
            at = at.setdefault(section, {})
        at[last] = value
    return found


def soak(options: Options, folder: Path, begin: float, say: Say) -> list[Sample]:
    """Run a service under load, and sample it. Samples are written as they come."""
    given = options.settings
    sections = {name: {**section, **given.get(name, {})} for name, section in SETTINGS.items()}
    say("starting the service")
    with running_service(topology=options.topology, **{**given, **sections}) as service:
        return uvloop.run(_drive(service, options, folder, begin, say))


async def _drive(
    service: Service, options: Options, folder: Path, begin: float, say: Say
) -> list[Sample]:
    traffic = Traffic("uniform", len(topology(options.topology).hosts))
    load = LoadGenerator(service.url, traffic, options.keyed)
    await load.prepare()
    say(f"{options.active:,} subscriptions")
    await load.fill(options.active)
    sampler = Sampler(service.access, service.settings.data_dir)
    samples: list[Sample] = []
    began = time.monotonic()
    end = began + 60 * options.minutes
    while time.monotonic() < end:
        result, failed = await _load_for(load, options)
        minute = (time.monotonic() - began) / 60
        samples.append(await sampler.sample(minute, result, failed, traffic.active))
        await asyncio.to_thread(write, folder, samples, begin)
        say(_progress(samples[-1]))
    return samples


async def _load_for(load: LoadGenerator, options: Options) -> tuple[LoadResult, int]:
    """Load for the time between two samples; the number of calls that got no answer."""
    failed = 0
    result = LoadResult()
    try:
        # Calls that are in progress when a stretch ends would let the number drift.
        await load.fill(options.active)
        await load.drain(options.active)
        if options.rate:
            arrivals = arrival_times("uniform", options.rate, options.every)
            result = await load.send_arrivals(arrivals, "batch")
        else:
            result = await load.saturate(options.every, "batch", options.batch)
    except* (CallFailed, LoadFailed, OSError, TimeoutError) as group:
        failed = len(group.exceptions)
        _console.print(f"calls without an answer: {group.exceptions!r}"[:500], markup=False)
    return result, failed


def _progress(sample: Sample) -> str:
    memory = ", ".join(f"{role} {size:.0f}" for role, size in sample.memory.items())
    return (
        f"{sample.minute:6.1f} min  {sample.requests_per_s:6.0f}/s  p50 {sample.p50_ms:.0f} ms"
        f"  p99 {sample.p99_ms:.0f} ms  etcd {sample.etcd['size']:.0f} MB"
        f" ({sample.etcd['in_use']:.0f} in use)  disk {sum(sample.disk.values()):.0f} MB"
        f"  memory in MB: {memory}"
    )


def exit_code(found: Sequence[tuple[Series, Verdict | None]], samples: Sequence[Sample]) -> int:
    """1 if a series gets worse, or a call got no answer."""
    worse = any(verdict is not None and verdict.trend == "worse" for _, verdict in found)
    return int(worse or any(sample.failed for sample in samples))


if __name__ == "__main__":
    main()
