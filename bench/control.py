"""The control plane as a whole, over REST, with emulated switches, beside a centralised controller.

The workload of thesis section 6.6 on `fat-tree:102` with 64 partitions: subscriptions and
unsubscriptions in equal numbers on top of those that are active. Service, switches, etcd and load
share the machine.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, Literal, NamedTuple

import uvloop

from bench.arrivals import Arrival, arrival_times
from bench.centralised import serve
from bench.cpu import Cpu
from bench.fairness import factor, fairness
from bench.load import Load, Measured, Way
from bench.report import Report, Row
from bench.service import service
from bench.traffic import Traffic
from bench.workload import Distribution
from sdn.topologies import topology

Progress = Callable[[str], None]
Mode = Literal["sna", "sea"]
TOPOLOGY = "fat-tree:102"
PARTITIONS = 64
CENTRAL_RATE = 2_500  # requests/s at which the peers are compared
MODES: tuple[Mode, ...] = ("sna", "sea")
WAYS: tuple[Way, ...] = ("batch", "single")
ARRIVALS: tuple[Arrival, ...] = ("uniform", "poisson")
CONTENTS: tuple[Distribution, ...] = ("uniform", "zipf")
SECTIONS = ("centralised", *MODES)  # that can be measured by themselves
QUICK_SECTIONS = ("centralised", "sna")
REFERENCE = {"configurators": 2, "content": "uniform", "switch_delay_ms": 0.0}
ENOUGH = 2_500  # subscriptions a second, encoded beforehand for as fast as can be
KINDS = ("api", "configurators", "southbound", "network", "etcd", "ray", "load", "other")


class Arrivals(NamedTuple):
    """One way in which requests come."""

    way: Way
    arrival: Arrival
    rate: int
    seconds: float = 10.0


class Case(NamedTuple):
    """One service that is measured."""

    mode: Mode
    configurators: int
    content: Distribution
    switch_delay_ms: float  # how late switches acknowledge
    arrivals: tuple[Arrivals, ...]
    fairness: float = 0.0  # seconds, of a quiet host alone and beside a flood

    @property
    def told(self) -> Row:
        """The columns that tell it from others."""
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
    """How much is measured."""

    cases: tuple[Case, ...]
    active: int = 10_000
    saturation: float = 8.0  # seconds
    single: float = 4.0  # likewise, one request a call
    central: float = 30.0  # seconds of the centralised controller's work, at most
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
    # Beyond what a service can do these tell how fast a queue grows, so that less is enough.
    *(Arrivals("single", arrival, rate, 3.0) for arrival, rate in product(ARRIVALS, RATES)),
)


def _full() -> Iterator[Case]:
    """Both modes, 1 to 4 configurators, both contents; uniform content on slow switches, too."""
    for mode in MODES:
        for delay, content in ((0.0, "uniform"), (0.0, "zipf"), (5.0, "uniform")):
            for configurators in (1, 2, 4):
                case = Case(mode, configurators, content, delay, USUAL)  # type: ignore[arg-type]
                if case.told == {"mode": mode, **REFERENCE}:
                    case = case._replace(arrivals=ALL, fairness=15.0)
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
            fairness=5.0,
        )
        for mode in MODES
    ),
    saturation=5.0,
    single=2.0,
    central=5.0,
)


def run(quick: bool, progress: Progress, only: Collection[str] = ()) -> Report:
    """Measure everything, or only some sections; `progress` is told what comes next."""
    scale = QUICK if quick else FULL
    sections = only or (QUICK_SECTIONS if quick else SECTIONS)
    report = Report("control", {"quick": quick, **scale._asdict()})
    cases = [case for case in scale.cases if case.mode in sections]
    peers = _peers(scale) if "centralised" in sections else {}
    steps = len(peers) + len(cases)
    for step, ((content, delay), arrivals) in enumerate(peers.items(), 1):
        progress(f"[{step}/{steps}] centralised controller, {content}, switches {delay:g} ms")
        report.rows += _central(scale, delay, content, arrivals)
    for step, case in enumerate(cases, len(peers) + 1):
        said = f"[{step}/{steps}] {case}"
        report.rows += _service(scale, case, lambda what, s=said: progress(f"{s}: {what}"))  # type: ignore[misc]
    report.ratios = ratios(report.rows)
    return report


def combined(before: Report, after: Report) -> Report:
    """Sections measured anew, and those of an earlier run that were not."""
    anew = {_section(row) for row in after.rows}
    kept = [row for row in before.rows if _section(row) not in anew]
    rows = [*kept, *after.rows]
    return Report("control", after.params, rows, ratios(rows), after.machine)


def _section(row: Row) -> str:
    return str(row.get("mode", row["measure"]))


def _peers(scale: Scale) -> dict[tuple[Distribution, float], list[Arrivals]]:
    """What the centralised controller is to be compared in: contents, delays, and arrivals."""
    found: dict[tuple[Distribution, float], list[Arrivals]] = {}
    for case in scale.cases:
        found.setdefault((case.content, case.switch_delay_ms), []).extend(case.arrivals)
    return found


def _central(
    scale: Scale, delay: float, content: Distribution, arrivals: list[Arrivals]
) -> Iterable[Row]:
    """The centralised controller under the same arrivals, all served in the end."""
    most = max((round(a.rate * a.seconds) for a in arrivals), default=1)
    work = serve(scale.topology, content, scale.active, delay / 1e3, most, scale.central)
    services = uvloop.run(work)
    for arrival, rate, seconds in dict.fromkeys(a[1:] for a in arrivals):
        yield {
            "measure": "centralised",
            "content": content,
            "switch_delay_ms": delay,
            "arrival": arrival,
            "rate": rate,
            "seconds": seconds,
            **services.row(arrival_times(arrival, rate, seconds)),
        }


def _service(scale: Scale, case: Case, progress: Progress) -> list[Row]:
    progress("starting")
    traffic = Traffic(case.content, len(topology(scale.topology).hosts))
    # Half of all requests begin something. Others do the starting meanwhile.
    arriving = sum(a.rate * a.seconds for a in case.arrivals)
    needed = scale.active + round(arriving / 2 + ENOUGH * (scale.saturation + scale.single))
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(traffic.encode, needed)
        with service(
            mode=case.mode,
            topology=scale.topology,
            partitions=scale.partitions,
            configurators=case.configurators,
            emulated={"switch_delay_ms": case.switch_delay_ms},
        ) as url:
            encoding.result()
            return uvloop.run(_load(url, scale, case, traffic, progress))


async def _load(
    url: str, scale: Scale, case: Case, traffic: Traffic, progress: Progress
) -> list[Row]:
    rows: list[Row] = []
    cpu = Cpu()

    def ready() -> None:
        gc.collect()
        gc.freeze()
        cpu.spent()

    def note(measure: str, told: Row, measured: Measured) -> None:
        rows.append({"measure": measure, **case.told, **told, **measured.row()})
        rows.append({"measure": "stages", **case.told, **told, **measured.stages_row()})
        spent = processor_row(cpu.spent(), measured)
        rows.append({"measure": "processor", **case.told, **told, **spent})

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
    for way, arrival, rate, seconds in case.arrivals:
        progress(f"{rate} requests/s, {arrival}, {way}")
        ready()
        measured = await load.arrive(arrival_times(arrival, rate, seconds), way)
        note("latency", _told(way, arrival, rate), measured)
    if case.fairness:
        progress("a quiet host beside a flood")
        hosts = len(topology(scale.topology).hosts)
        found = await fairness(url, hosts, case.fairness)
        rows += [{"measure": "fairness", **case.told, **row} for row in found]
    return rows


def processor_row(spent: dict[str, float], measured: Measured) -> Row:
    """Processor time by kind of process, in microseconds per request."""
    done = max(1, len(measured.latencies))
    each = {f"{kind}_us": 1e6 * spent.get(kind, 0.0) / done for kind in KINDS}
    return {**each, "all_us": sum(each.values())}


def _told(way: Way, arrival: str, rate: int = 0) -> Row:
    return {"way": way, "arrival": arrival, "rate": rate}


def ratios(rows: list[Row]) -> dict[str, float]:
    """Of what was measured by default: two configurators, switches that acknowledge at once.

    Those of shared everything have its name before them; what was not measured is left out.
    """

    def pick(measure: str, **wanted: Any) -> list[Row]:
        wanted |= {"measure": measure, **REFERENCE}
        return [row for row in rows if all(row.get(k, v) == v for k, v in wanted.items())]

    found: dict[str, float] = {}
    central = pick("centralised", arrival="poisson", rate=CENTRAL_RATE)
    # Of those that arrive for different times, that for which batches do.
    central = sorted(central, key=lambda row: row.get("seconds", 0.0))[-1:]
    for mode in MODES:
        name = "" if mode == "sna" else f"{mode}_"
        for row in pick("saturation", mode=mode, **_told("batch", "as fast as can be")):
            rate = found[f"{name}requests_per_s"] = row["requests_per_s"]
            for peer in central:
                found[f"{name}requests_per_s_over_central"] = rate / peer["requests_per_s"]
        for row in pick("latency", mode=mode, **_told("batch", "poisson", CENTRAL_RATE)):
            for peer in central:
                found[f"{name}latency_over_central"] = row["mean_ms"] / peer["mean_ms"]
        if quiet := pick("fairness", mode=mode):
            found[f"{name}fairness_p99"] = factor(quiet)
    return found
