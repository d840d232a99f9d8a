"""The timeline: requests by kind, failed requests and latency, one below the other."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from spark.report.drawing.markup import Html, element, joined
from spark.report.drawing.plots import (
    WIDTH,
    Tick,
    columns_axis,
    coordinate,
    figure,
    hover_columns,
    legend,
    rows_axis,
    stretched,
)
from spark.report.drawing.scales import TimeScale, drawable, fitting, linear
from spark.report.drawing.text import (
    count,
    listed,
    milliseconds,
    per,
    plural,
    short,
    short_count,
    span,
    tick_milliseconds,
)
from spark.report.model import Bucket, Timeline

_KINDS = ("subscribe", "unsubscribe", "advertise", "unadvertise", "update")
_REQUESTS, _FAILED, _LATENCY = 190, 44, 120  # heights
_LEAST = 8  # buckets across: the bars of a short time stay bars
_GAP = 0.15  # of a bar's width, if there is room
_ROOM = 130  # buckets that have gaps


def timeline_plots(timeline: Timeline) -> Html:
    """The plots of a timeline that has buckets, over the same axis of UTC times."""
    length = max(1, round(drawable(timeline.bucket_s) * 1_000_000))
    buckets = sorted(timeline.buckets, key=lambda bucket: bucket.begin_us)
    axis = _axis(buckets, length)
    places = [axis.at(bucket.begin_us) for bucket in buckets]
    width = length / (axis.end_us - axis.begin_us)
    kinds = _in_order({kind for bucket in buckets for kind in bucket.requests})
    plots = _Plots(axis, length, buckets, places, width)
    failed = [plots.failed()] if any(bucket.failed for bucket in buckets) else []
    return joined(
        [
            *_titled(
                f"Requests per {per(timeline.bucket_s)}",
                legend((colour(kind), short(kind)) for kind in kinds),
                plots.requests(kinds),
            ),
            *failed,
            *_titled(
                "Latency of requests",
                legend((("line p50", "p50"), ("line p99", "p99"))),
                plots.latency(),
            ),
        ]
    )


def colour(kind: str) -> str:
    """The class that gives a kind of request its colour."""
    return f"kind-{kind}" if kind in _KINDS else "kind-other"


class _Plots:
    """Draws the plots over one axis of time."""

    def __init__(
        self,
        axis: TimeScale,
        length: int,
        buckets: Sequence[Bucket],
        places: Sequence[float],
        width: float,
    ) -> None:
        self._buckets = buckets
        self._places = places
        self._width = width
        self._gap = _GAP * width if len(buckets) <= _ROOM else 0.0
        self._ticks = [
            Tick(at, text, minor=number % 2 == 1) for number, (at, text) in enumerate(axis.ticks())
        ]
        self._lines = [replace(tick, text="") for tick in self._ticks]
        self._told = [_told(bucket, length) for bucket in buckets]
        self._length = length

    def requests(self, kinds: Sequence[str]) -> Html:
        """Stacked bars."""
        totals = [float(sum(bucket.requests.values())) for bucket in self._buckets]
        scale = linear(totals, whole=True)
        below = [0.0] * len(self._buckets)
        paths = []
        for kind in kinds:
            bars = []
            for at, bucket in enumerate(self._buckets):
                low = below[at]
                below[at] = low + bucket.requests.get(kind, 0)
                bars.append((scale.at(low), scale.at(below[at])))
            paths.append(self._bars(bars, _REQUESTS, colour(kind)))
        busiest = max(range(len(totals)), key=totals.__getitem__)
        label = f"Requests over time by kind. Most in a bucket: {self._told[busiest]}"
        rows = rows_axis(scale, _REQUESTS, short_count)
        return self._figure(label, _REQUESTS, rows, paths)

    def failed(self) -> Html:
        """Bars of failed requests, with their title."""
        scale = linear([bucket.failed for bucket in self._buckets], 1, whole=True)
        bars = [(0.0, scale.at(bucket.failed)) for bucket in self._buckets]
        label = f"Failed requests over time, {count(sum(b.failed for b in self._buckets))} in all"
        rows = rows_axis(scale, _FAILED, short_count)
        plot = self._figure(
            label, _FAILED, rows, [self._bars(bars, _FAILED, "failed")], times=False
        )
        return joined(_titled(f"Failed per {per(self._length / 1e6)}", Html(""), plot))

    def latency(self) -> Html:
        """Lines of p50 and p99, interrupted where there were no requests."""
        p50 = [drawable(bucket.p50_ms) for bucket in self._buckets]
        p99 = [drawable(bucket.p99_ms) for bucket in self._buckets]
        scale = fitting([*p50, *p99], 3)
        lines = [
            self._line([scale.at(value) for value in values], class_)
            for values, class_ in ((p99, "p99"), (p50, "p50"))
        ]
        label = (
            f"Latency over time: p50 up to {milliseconds(max(p50))},"
            f" p99 up to {milliseconds(max(p99))}"
        )
        rows = rows_axis(scale, _LATENCY, tick_milliseconds)
        return self._figure(label, _LATENCY, rows, lines)

    def _figure(
        self, label: str, height: int, rows: Html, drawn: Sequence[Html], times: bool = True
    ) -> Html:
        hovers = hover_columns(
            (
                (place, self._width, told)
                for place, told in zip(self._places, self._told, strict=True)
            ),
            height,
        )
        columns = columns_axis(self._ticks if times else self._lines, height)
        return figure(label, height, columns, rows, stretched(height, *drawn), hovers)

    def _bars(self, bars: Iterable[tuple[float, float]], height: int, class_: str) -> Html:
        """Bars from one part of the height to another, as one path."""
        wide = coordinate((self._width - self._gap) * WIDTH)
        steps = []
        for place, (low, high) in zip(self._places, bars, strict=True):
            if high > low:
                x = coordinate((place + self._gap / 2) * WIDTH)
                y, tall = coordinate((1 - high) * height), coordinate((high - low) * height)
                steps.append(f"M{x} {y}h{wide}v{tall}h-{wide}z")
        return element("path", d="".join(steps), class_=class_)

    def _line(self, parts: Sequence[float], class_: str) -> Html:
        """A line through the buckets; those without neighbours are dots."""
        steps, dots = [], []
        begins = [bucket.begin_us for bucket in self._buckets]
        near = [after - before < 1.5 * self._length for before, after in pairwise(begins)]
        for at, (place, part) in enumerate(zip(self._places, parts, strict=True)):
            x = coordinate((place + self._width / 2) * WIDTH)
            y = coordinate((1 - part) * _LATENCY)
            follows, goes_on = at > 0 and near[at - 1], at < len(near) and near[at]
            if follows or goes_on:
                steps.append(f"{'L' if follows else 'M'}{x} {y}")
            else:
                dots.append(f"M{x} {y}h0")  # a line of no length, whose ends are round
        return joined(
            element("path", d="".join(drawn), class_=f"{shape} {class_}")
            for drawn, shape in ((steps, "line"), (dots, "line dot"))
            if drawn
        )


def _axis(buckets: Sequence[Bucket], length: int) -> TimeScale:
    begin, end = buckets[0].begin_us, buckets[-1].begin_us + length
    missing = max(0, _LEAST * length - (end - begin))
    return TimeScale(begin - missing // 2, end + missing - missing // 2)


def _in_order(kinds: Iterable[str]) -> list[str]:
    known = {kind: place for place, kind in enumerate(_KINDS)}
    return sorted(kinds, key=lambda kind: (known.get(kind, len(known)), kind))


def _told(bucket: Bucket, length: int) -> str:
    kinds = [f"{short(kind)} {count(bucket.requests[kind])}" for kind in _in_order(bucket.requests)]
    total = plural(sum(bucket.requests.values()), "request")
    failed = f", {count(bucket.failed)} failed" if bucket.failed else ""
    return (
        f"{span(bucket.begin_us, bucket.begin_us + length)}: {total}"
        f" ({listed(kinds) or 'of no kind'}){failed};"
        f" p50 {milliseconds(bucket.p50_ms)}, p99 {milliseconds(bucket.p99_ms)}"
    )


def _titled(title: str, keys: Html, plot: Html) -> list[Html]:
    return [element("div", element("h3", title), keys, class_="plot-title"), plot]
