"""The control plane as a whole, over REST, with emulated switches, beside a centralised controller.

The workload of thesis section 6.6 on `fat-tree:102` with 64 partitions: subscriptions and
unsubscriptions in equal numbers on top of those that are active. Service, switches, etcd and load
share the machine.
"""

import gc
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import uvloop

from bench.arrivals import Arrival, arrival_times
from bench.centralised import serve
from bench.cpu import Cpu
from bench.load import Load, Measured, Way
from bench.report import Report, Row
from bench.service import service
from bench.traffic import Traffic
from bench.workload import Distribution
from sdn.topologies import topology

Progress = Callable[[str], None]
TOPOLOGY = "fat-tree:102"
PARTITIONS = 64
CENTRAL_RATE = 2_500  # requests/s at which the peers are compared
WAYS: tuple[Way, ...] = ("batch", "single")
ARRIVALS: tuple[Arrival, ...] = ("uniform", "poisson")
REFERENCE = {"configurators": 2, "content": "uniform", "switch_delay_ms": 0.0}
ENOUGH = 2_500  # subscriptions a second, encoded beforehand for as fast as can be
KINDS = ("api", "configurators", "southbound", "network", "etcd", "ray", "load", "other")


class Arrivals(NamedTuple):
    """One way in which requests come."""

    way: Way
    arrival: Arrival
    rate: int
    seconds: float = 10.0


class Scale(NamedTuple):
    """How much is measured."""

    configurators: tuple[int, ...]
    delays_ms: tuple[float, ...]  # how late switches acknowledge
    contents: tuple[Distribution, ...]
    arrivals: tuple[Arrivals, ...]
    active: int = 10_000
    saturation: float = 8.0  # seconds
    single: float = 5.0  # likewise, one request a call
    central: float = 60.0  # seconds of the centralised controller's work, at most
    topology: str = TOPOLOGY
    partitions: int = PARTITIONS


FULL = Scale(
    (1, 2, 4),
    (0.0, 5.0),
    ("uniform", "zipf"),
    tuple(
        Arrivals(way, arrival, rate, 10.0 if rate == CENTRAL_RATE else 5.0)
        for way, arrival, rate in product(WAYS, ARRIVALS, (500, 1_000, CENTRAL_RATE))
    ),
)
QUICK = Scale(
    (2,),
    (0.0,),
    ("uniform",),
    (Arrivals("batch", "poisson", 500, 3.0), Arrivals("batch", "poisson", CENTRAL_RATE)),
    saturation=5.0,
    single=2.0,
    central=5.0,
)


def run(quick: bool, progress: Progress) -> Report:
    """Measure everything; `progress` is told what comes next."""
    scale = QUICK if quick else FULL
    report = Report("control", {"quick": quick, **scale._asdict()})
    for delay, content in product(scale.delays_ms, scale.contents):
        progress(f"centralised controller, {content}, switches {delay:g} ms")
        report.rows += _central(scale, delay, content)
        for configurators in scale.configurators:
            case = {
                "configurators": configurators,
                "content": content,
                "switch_delay_ms": delay,
            }
            said = f"{configurators} configurators, {content}, switches {delay:g} ms"
            report.rows += _service(scale, case, lambda what, s=said: progress(f"{s}: {what}"))  # type: ignore[misc]
    report.ratios = ratios(report.rows)
    return report


def _central(scale: Scale, delay: float, content: Distribution) -> Iterable[Row]:
    """The centralised controller under the same arrivals, all served in the end."""
    most = max((round(a.rate * a.seconds) for a in scale.arrivals), default=1)
    work = serve(scale.topology, content, scale.active, delay / 1e3, most, scale.central)
    services = uvloop.run(work)
    for arrival, rate, seconds in dict.fromkeys(a[1:] for a in scale.arrivals):
        yield {
            "measure": "centralised",
            "content": content,
            "switch_delay_ms": delay,
            "arrival": arrival,
            "rate": rate,
            "seconds": seconds,
            **services.row(arrival_times(arrival, rate, seconds)),
        }


def _service(scale: Scale, case: dict[str, Any], progress: Progress) -> list[Row]:
    progress("starting")
    traffic = Traffic(case["content"], len(topology(scale.topology).hosts))
    # Half of all requests begin something. Others do the starting meanwhile.
    arriving = sum(a.rate * a.seconds for a in scale.arrivals)
    needed = scale.active + round(arriving / 2 + ENOUGH * (scale.saturation + scale.single))
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(traffic.encode, needed)
        with service(
            topology=scale.topology,
            partitions=scale.partitions,
            configurators=case["configurators"],
            emulated={"switch_delay_ms": case["switch_delay_ms"]},
        ) as url:
            encoding.result()
            return uvloop.run(_load(url, scale, case, traffic, progress))


async def _load(
    url: str, scale: Scale, case: dict[str, Any], traffic: Traffic, progress: Progress
) -> list[Row]:
    rows: list[Row] = []
    cpu = Cpu()

    def ready() -> None:
        gc.collect()
        gc.freeze()
        cpu.spent()

    def note(measure: str, told: Row, measured: Measured) -> None:
        rows.append({"measure": measure, **case, **told, **measured.row()})
        rows.append({"measure": "stages", **case, **told, **measured.stages_row()})
        spent = processor_row(cpu.spent(), measured)
        rows.append({"measure": "processor", **case, **told, **spent})

    load = Load(url, traffic)
    await load.prepare()
    progress(f"{scale.active:,} subscriptions")
    cpu.spent()
    filled = await load.fill(scale.active)
    note("saturation", _told("batch", "as fast as can be, empty network"), filled)
    for way, seconds in zip(WAYS, (scale.saturation, scale.single), strict=True):
        progress(f"saturation, {way}")
        ready()
        measured = await load.saturate(seconds, way)
        note("saturation", _told(way, "as fast as can be"), measured)
    for way, arrival, rate, seconds in scale.arrivals:
        progress(f"{rate} requests/s, {arrival}, {way}")
        ready()
        measured = await load.arrive(arrival_times(arrival, rate, seconds), way)
        note("latency", _told(way, arrival, rate), measured)
    return rows


def processor_row(spent: dict[str, float], measured: Measured) -> Row:
    """Processor time by kind of process, in microseconds per request."""
    done = max(1, len(measured.latencies))
    each = {f"{kind}_us": 1e6 * spent.get(kind, 0.0) / done for kind in KINDS}
    return {**each, "all_us": sum(each.values())}


def _told(way: Way, arrival: str, rate: int = 0) -> Row:
    return {"way": way, "arrival": arrival, "rate": rate}


def ratios(rows: list[Row]) -> dict[str, float]:
    """Of what was measured by default: two configurators, switches that acknowledge at once."""

    def pick(measure: str, **wanted: Any) -> Row:
        wanted |= {"measure": measure, **REFERENCE}
        return next(row for row in rows if all(row.get(k, v) == v for k, v in wanted.items()))

    saturation = pick("saturation", **_told("batch", "as fast as can be"))
    latency = pick("latency", **_told("batch", "poisson", CENTRAL_RATE))
    central = pick("centralised", arrival="poisson", rate=CENTRAL_RATE)
    return {
        "requests_per_s": saturation["requests_per_s"],
        "latency_over_central": latency["mean_ms"] / central["mean_ms"],
        "requests_per_s_over_central": saturation["requests_per_s"] / central["requests_per_s"],
    }
