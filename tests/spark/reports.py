"""Reports for tests: a realistic one, and others made from it."""

from math import exp, pi, sin
from random import Random

from spark.report.model import (
    AttributeHeat,
    Bin,
    Bucket,
    Churn,
    ExpensiveRequest,
    Histogram,
    HostRow,
    HotRegion,
    KindRow,
    LoadRow,
    Report,
    Skew,
    StageRow,
    Timeline,
)
from spark.traces import SkippedFile, Source

BEGIN_US = 1_772_622_125_250_000  # 2026-03-04 11:02:05 UTC
_SECOND = 1_000_000
_BUCKET_S = 60.0
_KINDS = {
    "subscribe": 0.44,
    "unsubscribe": 0.36,
    "advertise": 0.06,
    "unadvertise": 0.04,
    "update": 0.1,
}
FILTER = (
    '{"symbol":{"prefix":"EU:"},"price":{"between":[12.5,99.75]},"volume":{"gte":10000},'
    '"exchange":{"in":["XETR","XLON","XPAR","XAMS","XMIL"]},"kind":{"ne":"test"}}'
)


def example_report() -> Report:
    """Two hours of a system with 2 spaces, 24 partitions, 4 configurators and some trouble."""
    random = Random(7)
    buckets = _buckets(random)
    totals = {kind: sum(each.requests[kind] for each in buckets) for kind in _KINDS}
    requests = sum(totals.values())
    partitions = _partitions(random)
    return Report(
        source=Source(
            path="/var/lib/dzflow/traces/requests",
            made_us=BEGIN_US + 9_000 * _SECOND,
            begin_us=BEGIN_US,
            end_us=BEGIN_US + 7_204 * _SECOND,
            files=49,
            rows=round(requests * 2.3),
            requests=requests,
            skipped=(
                SkippedFile(
                    "20260304T110500-api-1-000007.parquet", "not a Parquet file: no footer"
                ),
                SkippedFile("20260304T121000-api-2-000019.parquet", "lacks the column `pushed_us`"),
            ),
            backwards=12,
            notices=("The space `old` is not described in the traces: it has no hot regions.",),
        ),
        kinds=tuple(_kind(kind, totals[kind], buckets) for kind in _KINDS),
        timeline=Timeline(_BUCKET_S, buckets),
        hosts=_hosts(random, requests),
        latency=(
            StageRow("total", 41.2, 18.4, 77.9, 412.0, 6_120.0),
            StageRow("queued", 27.9, 6.1, 60.2, 371.0, 5_980.0),
            StageRow("decided", 2.4, 0.92, 5.3, 21.4, 130.0),
            StageRow("pushed", 10.6, 9.8, 15.1, 33.0, 1_204.0),
        ),
        partitions=partitions,
        configurators=_configurators(partitions),
        slices=_histogram(random, [1, 2, 4, 8, 16, 32, 64, 128, 256], 0.62, 41_200),
        operations=_histogram(random, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], 0.78, requests),
        churn=(
            Churn("stocks", "subscription", 91_224, 18_004, 84_110, _lifetimes(random, 61_204)),
            Churn("stocks", "advertisement", 11_002, 1_822, 9_871, _lifetimes(random, 4_310)),
            Churn("sensors", "subscription", 4_120, 711, 0, None),
        ),
        hot=(
            HotRegion("stocks", 'price < 125 and symbol < "G"', 88_210, 91_300.0, 0.41),
            HotRegion(
                "stocks", "price >= 125 and price < 250 and volume < 1000", 31_400, 22e3, 0.1
            ),
            HotRegion("sensors", "temperature >= 20 and temperature < 22.5", 2_310, 1_900.0, 0.37),
        ),
        heat=_heat(random),
        expensive=_expensive(random),
        skew=(
            Skew("partitions", 24, 4.6, 0.31),
            Skew("configurators", 4, 1.42, 0.355),
            Skew("hosts", 1_420, 61.2, 0.71),
        ),
    )


def one_row_report() -> Report:
    """A single request that concerned one partition."""
    one = Histogram(1, 1.0, 1.0, 1.0, 1.0, 1.0, (Bin(1.0, 1),))
    load = LoadRow("all", "stocks", 1, 0.4, 1.0, 1.2, 1.2, 0.4, 0.4, 7.5, 7.5, 1)
    return Report(
        source=Source("one.parquet", BEGIN_US, BEGIN_US, BEGIN_US + 9_100, 1, 1, 1),
        kinds=(KindRow("subscribe", 1, 0, 109.9, 1.0, 1.0, 1.0, 0.0, 0.0),),
        timeline=Timeline(1.0, (Bucket(BEGIN_US, {"subscribe": 1}, 0, 9.1, 9.1),)),
        hosts=(HostRow("h1", 1, 1.0, 0, 0.4),),
        latency=tuple(
            StageRow(stage, *[ms] * 5)
            for stage, ms in (("total", 9.1), ("queued", 1.2), ("decided", 0.4), ("pushed", 7.5))
        ),
        partitions=(load,),
        configurators=(
            LoadRow("configurator-1", "", 1, 0.4, 1.0, 1.2, 1.2, 0.4, 0.4, 7.5, 7.5, 1),
        ),
        slices=one,
        operations=one,
        churn=(Churn("stocks", "subscription", 1, 0, 0, None),),
        heat=(AttributeHeat("stocks", "price", ("0 to 500", "500 to 1,000"), (0.0, 0.0), 1.0),),
        expensive=(
            ExpensiveRequest(
                "a1", "subscribe", "stocks", "h1", BEGIN_US, 9.1, 0.4, 1, 1, 1, '{"price":{"lt":5}}'
            ),
        ),
        skew=(Skew("partitions", 1, 1.0, 1.0),),
    )


def empty_report(*skipped: SkippedFile) -> Report:
    """A report on traces without rows."""
    return Report(source=Source("/tmp/nowhere", BEGIN_US, 0, 0, 0, 0, 0, skipped))  # noqa: S108


def _buckets(random: Random) -> tuple[Bucket, ...]:
    found = []
    for at in range(120):
        if 71 <= at < 75:
            continue  # the service was down
        wave = 0.6 + 0.4 * sin(at / 120 * 2 * pi * 1.5) + 2.2 * exp(-(((at - 92) / 4) ** 2))
        total = 900 * wave * random.uniform(0.85, 1.15)
        busy = max(1.0, wave / 1.2) ** 3
        found.append(
            Bucket(
                begin_us=BEGIN_US // (60 * _SECOND) * 60 * _SECOND + at * 60 * _SECOND,
                requests={kind: round(total * part) for kind, part in _KINDS.items()},
                failed=random.choice((0, 0, 0, 2)) + (40 if 75 <= at < 78 else 0),
                p50_ms=14 * busy**0.5 * random.uniform(0.9, 1.1),
                p99_ms=120 * busy * random.uniform(0.8, 1.3),
            )
        )
    return tuple(found)


def _kind(kind: str, requests: int, buckets: tuple[Bucket, ...]) -> KindRow:
    return KindRow(
        kind=kind,
        requests=requests,
        failed=round(requests * 0.004) if kind == "subscribe" else 0,
        per_s=requests / 7_204,
        peak_per_s=max(each.requests[kind] for each in buckets) / _BUCKET_S,
        partials=1.4 if kind != "advertise" else 8.25,
        adds=6.2 if kind in ("subscribe", "advertise", "update") else 0.0,
        modifies=0.8,
        deletes=5.9 if kind in ("unsubscribe", "unadvertise", "update") else 0.03,
    )


def _hosts(random: Random, requests: int) -> tuple[HostRow, ...]:
    shares = sorted((random.paretovariate(1.2) for _ in range(19)), reverse=True)
    whole = sum(shares) * 1.6
    rows = [
        HostRow(
            f"edge-{at:02}.fra.example.net",
            round(requests * part / whole),
            part / whole,
            round(37 / (at + 1)),
            requests * part / whole * 1.1,
        )
        for at, part in enumerate(shares)
    ]
    rest = 1 - sum(row.share for row in rows)
    return (*rows, HostRow("", round(requests * rest), rest, 12, requests * rest))


def _partitions(random: Random) -> tuple[LoadRow, ...]:
    weights = [1 / (at + 1) ** 0.8 * random.uniform(0.8, 1.2) for at in range(24)]
    whole = sum(weights)
    return tuple(
        LoadRow(
            name=f"{1 if at % 6 else 2}.1/{3 + at % 4}-{at % 2}.{11 + at % 5}-{'01x'[at % 3]}",
            space="stocks" if at % 6 else "sensors",
            partials=round(210_000 * weight / whole),
            work_ms=222_000 * weight / whole,
            share=weight / whole,
            queued_p50_ms=6.1 * (1 + weight),
            queued_p99_ms=371 * (0.3 + weight),
            decided_p50_ms=0.92,
            decided_p99_ms=21.4 * (0.4 + weight),
            pushed_p50_ms=9.8,
            pushed_p99_ms=33.0,
            operations=round(960_000 * weight / whole),
        )
        for at, weight in enumerate(weights)
    )


def _configurators(partitions: tuple[LoadRow, ...]) -> tuple[LoadRow, ...]:
    parts = (0.355, 0.26, 0.22, 0.165)
    work = sum(row.work_ms for row in partitions)
    return tuple(
        LoadRow(
            name=f"configurator-{at}",
            space="",
            partials=round(210_000 * part),
            work_ms=work * part,
            share=part,
            queued_p50_ms=7.0,
            queued_p99_ms=280.0 * part * 4,
            decided_p50_ms=0.9,
            decided_p99_ms=22.0,
            pushed_p50_ms=9.9,
            pushed_p99_ms=34.0,
            operations=round(960_000 * part),
        )
        for at, part in enumerate(parts, 1)
    )


def _histogram(random: Random, bounds: list[float], decay: float, many: int) -> Histogram:
    weights = [decay**at * random.uniform(0.8, 1.2) for at in range(len(bounds))]
    counts = [round(many * weight / sum(weights)) for weight in weights]
    bins = tuple(Bin(float(upto), each) for upto, each in zip(bounds, counts, strict=True))
    return Histogram(sum(counts), 4.18, 2.0, 12.0, 61.0, bounds[-1] * 0.9, bins)


def _lifetimes(random: Random, many: int) -> Histogram:
    bounds = [float(2**power) for power in range(13)]
    weights = [exp(-(((at - 7) / 2.2) ** 2)) * random.uniform(0.8, 1.2) for at in range(13)]
    counts = [round(many * weight / sum(weights)) for weight in weights]
    bins = tuple(Bin(upto, each) for upto, each in zip(bounds, counts, strict=True))
    return Histogram(sum(counts), 188.0, 74.0, 510.0, 2_400.0, 6_911.0, bins)


def _heat(random: Random) -> tuple[AttributeHeat, ...]:
    return (
        _attribute(random, "sensors", "temperature", 64, 0.33, 0.1, 0.08),
        _attribute(random, "sensors", "humidity", 100, 0.5, 2.0, 0.62),
        _attribute(random, "stocks", "price", 1_000, 0.08, 0.12, 0.04),
        _attribute(random, "stocks", "volume", 1_000_000, 0.2, 0.6, 0.55),
        AttributeHeat("stocks", "symbol", ('symbol < "N"', 'symbol >= "N"'), (0.5, 0.1), 0.4),
    )


def _attribute(
    random: Random, space: str, attribute: str, top: float, peak: float, wide: float, open_: float
) -> AttributeHeat:
    """The heat of an attribute from 0 to `top`, with a peak at a part of its range."""
    places = [at / 8 for at in range(8)]
    weights = [exp(-(((at - peak) / wide) ** 2)) + random.uniform(0, 0.06) for at in places]
    labels = [
        f"{attribute} >= {top * at:.10g} and {attribute} < {top * (at + 0.125):.10g}"
        for at in places
    ]
    labels[0] = f"{attribute} < {top / 8:.10g}"
    labels[-1] = f"{attribute} >= {top * 7 / 8:.10g}"
    shares = tuple((1 - open_) * weight / sum(weights) for weight in weights)
    return AttributeHeat(space, attribute, tuple(labels), shares, open_)


def _expensive(random: Random) -> tuple[ExpensiveRequest, ...]:
    return tuple(
        ExpensiveRequest(
            id=f"{random.getrandbits(64):016x}" + (f".{at}" if at % 3 == 0 else ""),
            kind=random.choice(("subscribe", "update", "advertise")),
            space="stocks",
            host=f"edge-{random.randrange(19):02}.fra.example.net",
            received_us=BEGIN_US + random.randrange(7_000) * _SECOND,
            total_ms=6_120.0 / (at + 1),
            work_ms=130.0 / (1 + at / 6),
            partials=random.randrange(8, 24),
            regions=random.randrange(64, 400),
            operations=random.randrange(100, 900),
            filter=FILTER if at % 2 else '{"price":{"lt":125}}',
        )
        for at in range(10)
    )
