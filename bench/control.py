"""The whole control plane over REST, on emulated switches, beside a centralised controller.

The workload is that of thesis section 6.6 on `fat-tree:102` with 64 partitions: subscriptions and
unsubscriptions in equal numbers, on top of the active ones. Service, switches, etcd and load share
the machine.
"""

import gc
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, Literal, NamedTuple

import uvloop

from bench.centralised import measure_centralised
from bench.load.arrivals import Arrival, arrival_times
from bench.load.fairness import measure_fairness, p99_factor
from bench.load.generator import CallKind, LoadGenerator, LoadResult
from bench.load.lone import lone_ratios, measure_lone
from bench.load.traffic import Traffic
from bench.processes.cpu import CpuMeter
from bench.processes.service import running_url
from bench.report import Progress, Report, Row
from bench.workload import Distribution
from sdn.network.topologies import topology

Mode = Literal["sna", "sea"]
TOPOLOGY = "fat-tree:102"
PARTITIONS = 64
CENTRAL_RATE = 2_500  # requests/s at which the service and its peer are compared
MODES: tuple[Mode, ...] = ("sna", "sea")
CALL_KINDS: tuple[CallKind, ...] = ("batch", "single")
ARRIVALS: tuple[Arrival, ...] = ("uniform", "poisson")
CONTENTS: tuple[Distribution, ...] = ("uniform", "zipf")
SECTIONS = ("centralised", *MODES)  # for --only
QUICK_SECTIONS = ("centralised", "sna")
REFERENCE = {"configurators": 2, "content": "uniform", "switch_delay_ms": 0.0}
ENCODED_PER_S = 2_500  # subscriptions encoded ahead for each second of saturation
SATURATION = "saturation"
EMPTY_NETWORK = "saturation, empty network"
KINDS = ("api", "configurators", "southbound", "network", "etcd", "ray", "load", "other")


class Arrivals(NamedTuple):
    """Requests that arrive at some rate."""

    calls: CallKind
    arrival: Arrival
    rate: int
    seconds: float = 10.0


class Case(NamedTuple):
    """One configuration of the service to measure."""

    mode: Mode
    configurators: int
    content: Distribution
    switch_delay_ms: float  # how late switches acknowledge
    arrivals: tuple[Arrivals, ...]
    fairness: float = 0.0  # seconds of each measurement; 0: none
    lone: int = 0  # requests that are sent one by one

    @property
    def columns(self) -> Row:
        """The columns that identify the case."""
        return {
            "mode": self.mode,
            "configurators": self.configurators,
            "content": self.content,
            "switch_delay_ms": self.switch_delay_ms,
        }

    def __str__(self) -> str:
        return (
            f"{self.mode}, {self.configurators} configurators, {self.content},"
            f" switches {self.switch_delay_ms:g} ms"
        )


class Scale(NamedTuple):
    """The extent of the benchmark."""

    cases: tuple[Case, ...]
    active: int = 10_000
    saturation: float = 8.0  # seconds
    single: float = 4.0  # seconds of saturation with one request per call
    central: float = 30.0  # at most this many seconds of the centralised controller's work
    topology: str = TOPOLOGY
    partitions: int = PARTITIONS


RATES = (500, 1_000, CENTRAL_RATE)
USUAL = tuple(
    Arrivals("batch", "poisson", rate, 10.0 if rate == CENTRAL_RATE else 4.0) for rate in RATES
)
ALL = (
    *(
        Arrivals("batch", arrival, rate, 10.0 if rate == CENTRAL_RATE else 5.0)
        for arrival, rate in product(ARRIVALS, RATES)
    ),
    # Above its capacity, these show how fast the queue of a service grows: 3 s are enough.
    *(Arrivals("single", arrival, rate, 3.0) for arrival, rate in product(ARRIVALS, RATES)),
)


def _full() -> Iterator[Case]:
    """Both modes, 1 to 4 configurators, both contents; uniform content also on slow switches."""
    for mode in MODES:
        for delay, content in ((0.0, "uniform"), (0.0, "zipf"), (5.0, "uniform")):
            for configurators in (1, 2, 4):
                case = Case(mode, configurators, content, delay, USUAL)  # type: ignore[arg-type]
                if case.columns == {"mode": mode, **REFERENCE}:
                    case = case._replace(arrivals=ALL, fairness=15.0, lone=300)
                yield case


FULL = Scale(tuple(_full()))
QUICK = Scale(
    tuple(
        Case(
            mode,
            2,
            "uniform",
            0.0,
            (Arrivals("batch", "poisson", 500, 3.0), Arrivals("batch", "poisson", CENTRAL_RATE)),
            fairness=10.0,
            lone=100,
        )
        for mode in MODES
    ),
    saturation=5.0,
    single=2.0,
    central=5.0,
)


def run(quick: bool, progress: Progress, only: Collection[str] = ()) -> Report:
    """Measure everything, or some sections. `progress` is called with the name of each step."""
    scale = QUICK if quick else FULL
    sections = only or (QUICK_SECTIONS if quick else SECTIONS)
    report = Report("control", {"quick": quick, **scale._asdict()})
    cases = [case for case in scale.cases if case.mode in sections]
    peers = _peers(scale) if "centralised" in sections else {}
    steps = len(peers) + len(cases)
    for step, ((content, delay), arrivals) in enumerate(peers.items(), 1):
        progress(f"[{step}/{steps}] centralised controller, {content}, switches {delay:g} ms")
        report.rows += _measure_peer(scale, delay, content, arrivals)
    for step, case in enumerate(cases, len(peers) + 1):
        title = f"[{step}/{steps}] {case}"
        report.rows += _measure_service(scale, case, lambda what, t=title: progress(f"{t}: {what}"))  # type: ignore[misc]
    report.ratios = ratios(report.rows)
    return report


def combined(before: Report, after: Report) -> Report:
    """The sections of the later report, and those that only the earlier one has."""
    replaced = {_section(row) for row in after.rows}
    kept = [row for row in before.rows if _section(row) not in replaced]
    rows = [*kept, *after.rows]
    return Report("control", after.params, rows, ratios(rows), after.machine)


def _section(row: Row) -> str:
    return str(row.get("mode", row["measure"]))


def _peers(scale: Scale) -> dict[tuple[Distribution, float], list[Arrivals]]:
    """The arrivals that the centralised controller has to serve, by content and switch delay."""
    found: dict[tuple[Distribution, float], list[Arrivals]] = {}
    for case in scale.cases:
        found.setdefault((case.content, case.switch_delay_ms), []).extend(case.arrivals)
    return found


def _measure_peer(
    scale: Scale, delay: float, content: Distribution, arrivals: list[Arrivals]
) -> Iterable[Row]:
    """Measure the centralised controller under the same arrivals."""
    most = max((round(a.rate * a.seconds) for a in arrivals), default=1)
    services = uvloop.run(
        measure_centralised(scale.topology, content, scale.active, delay / 1e3, most, scale.central)
    )
    for arrival, rate, seconds in dict.fromkeys(a[1:] for a in arrivals):
        yield {
            "measure": "centralised",
            "content": content,
            "switch_delay_ms": delay,
            "arrival": arrival,
            "rate": rate,
            "seconds": seconds,
            **services.columns(arrival_times(arrival, rate, seconds)),
        }


def _measure_service(scale: Scale, case: Case, progress: Progress) -> list[Row]:
    progress("starting")
    traffic = Traffic(case.content, len(topology(scale.topology).hosts))
    # Half of all requests are subscriptions. They are encoded while the service starts.
    arriving = sum(a.rate * a.seconds for a in case.arrivals)
    needed = scale.active + round(arriving / 2 + ENCODED_PER_S * (scale.saturation + scale.single))
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(traffic.encode_ahead, needed)
        with running_url(
            mode=case.mode,
            topology=scale.topology,
            partitions=scale.partitions,
            configurators=case.configurators,
            emulated={"switch_delay_ms": case.switch_delay_ms},
        ) as url:
            encoding.result()
            return uvloop.run(_measure_load(url, scale, case, traffic, progress))


async def _measure_load(
    url: str, scale: Scale, case: Case, traffic: Traffic, progress: Progress
) -> list[Row]:
    rows: list[Row] = []
    cpu = CpuMeter()

    def reset() -> None:
        gc.collect()
        gc.freeze()
        cpu.read()

    def add_rows(measure: str, arrival: Row, result: LoadResult) -> None:
        columns = {**case.columns, **arrival}
        rows.append({"measure": measure, **columns, **result.columns()})
        rows.append({"measure": "stages", **columns, **result.stage_columns()})
        rows.append({"measure": "processor", **columns, **processor_columns(cpu.read(), result)})

    load = LoadGenerator(url, traffic)
    await load.prepare()
    progress(f"{scale.active:,} subscriptions")
    cpu.read()
    filled = await load.fill(scale.active)
    add_rows("saturation", _arrival_columns("batch", EMPTY_NETWORK), filled)
    if case.lone:
        progress("requests one by one")
        rows.append({"measure": "lone", **case.columns, **await measure_lone(load, case.lone)})
    for calls, seconds in zip(CALL_KINDS, (scale.saturation, scale.single), strict=True):
        progress(f"saturation, {calls}")
        reset()
        result = await load.saturate(seconds, calls)
        add_rows("saturation", _arrival_columns(calls, SATURATION), result)
    for calls, arrival, rate, seconds in case.arrivals:
        progress(f"{rate} requests/s, {arrival}, {calls}")
        reset()
        result = await load.send_arrivals(arrival_times(arrival, rate, seconds), calls)
        add_rows("latency", _arrival_columns(calls, arrival, rate), result)
    if case.fairness:
        progress("a quiet host beside a flood")
        hosts = len(topology(scale.topology).hosts)
        fairness = await measure_fairness(url, hosts, case.fairness)
        rows += [{"measure": "fairness", **case.columns, **row} for row in fairness]
    return rows


def processor_columns(spent: dict[str, float], result: LoadResult) -> Row:
    """Processor time by kind of process, in microseconds per request."""
    done = max(1, len(result.latencies))
    each = {f"{kind}_us": 1e6 * spent.get(kind, 0.0) / done for kind in KINDS}
    return {**each, "all_us": sum(each.values())}


def _arrival_columns(calls: CallKind, arrival: str, rate: int = 0) -> Row:
    return {"calls": calls, "arrival": arrival, "rate": rate}


def ratios(rows: list[Row]) -> dict[str, float]:
    """The ratios of the reference case: two configurators, switches that acknowledge at once.

    Ratios of shared everything have the prefix `sea_`. Sections that were not measured have none.
    """

    def pick(measure: str, **columns: Any) -> list[Row]:
        columns |= {"measure": measure, **REFERENCE}
        return [row for row in rows if all(row.get(k, v) == v for k, v in columns.items())]

    found: dict[str, float] = {}
    central = pick("centralised", arrival="poisson", rate=CENTRAL_RATE)
    # The peer served arrivals of several lengths; compare with the longest, as for batches.
    central = sorted(central, key=lambda row: row.get("seconds", 0.0))[-1:]
    for mode in MODES:
        prefix = "" if mode == "sna" else f"{mode}_"
        for row in pick("saturation", mode=mode, **_arrival_columns("batch", SATURATION)):
            rate = found[f"{prefix}requests_per_s"] = row["requests_per_s"]
            for peer in central:
                found[f"{prefix}requests_per_s_over_central"] = rate / peer["requests_per_s"]
        for row in pick("latency", mode=mode, **_arrival_columns("batch", "poisson", CENTRAL_RATE)):
            for peer in central:
                found[f"{prefix}latency_over_central"] = row["mean_ms"] / peer["mean_ms"]
        for row in pick("lone", mode=mode):
            found |= {f"{prefix}{name}": value for name, value in lone_ratios(row).items()}
        if fairness := pick("fairness", mode=mode):
            found[f"{prefix}fairness_p99"] = p99_factor(fairness)
    return found
