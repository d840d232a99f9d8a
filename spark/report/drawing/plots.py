"""Plots as inline SVG, drawn by this small module: matplotlib is an extra for benchmarks only, and
its pictures would neither follow the width of the page nor its dark and light colours.

Positions along the width are percentages and text has a fixed size, so that a plot is as readable
on a phone as on a wide screen. Labels lie in the margins that the style sheet leaves around a plot.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from spark.report.drawing.markup import Html, element, joined
from spark.report.drawing.scales import Scale, drawable, fitting, linear
from spark.report.drawing.text import SPACE, count, plural, share, short_count
from spark.report.model import Histogram

WIDTH = 1_000  # units across a `stretched` drawing
_CHARACTER = 6.6  # pixels of a label's character, about
_NARROWEST, _WIDER = 220.0, 400.0  # pixels of a histogram on a phone, and on a wide screen
_FEW = 7  # bars that are as wide as their labels
_ROW = 34  # pixels of a row of ranges
_BAR = 14

Show = Callable[[float], str]


@dataclass(frozen=True)
class Tick:
    """A label below a plot at a part of the width; `minor` ones are left out on narrow screens."""

    at: float
    text: str
    minor: bool = False


@dataclass(frozen=True)
class Range:
    """The middle, the usual and the seldom values of one thing, for `ranges`."""

    name: str
    p50: float
    p90: float
    p99: float
    max: float


def percent(part: float) -> str:
    """A part of 1 as a percentage for an attribute."""
    return f"{_short(part * 100)}%"


def coordinate(value: float) -> str:
    """A coordinate with as many digits as can be seen."""
    return _short(value)


def figure(label: str, height: int, *parts: Html, class_: str = "plot") -> Html:
    """A plot as wide as the page; `label` says to those who do not see it what it shows."""
    return element(
        "svg", *parts, class_=class_, width="100%", height=height, role="img", aria_label=label
    )


def stretched(height: int, *parts: Html) -> Html:
    """A drawing of `WIDTH` units that is stretched to the width of its plot."""
    return element(
        "svg",
        *parts,
        width="100%",
        height=height,
        viewBox=f"0 0 {WIDTH} {height}",
        preserveAspectRatio="none",
    )


def rows_axis(scale: Scale, height: int, show: Show) -> Html:
    """Lines across the plot, with their values to the left."""
    lines = []
    for value in scale.ticks:
        y = coordinate(height * (1 - scale.at(value)))
        base = "base" if value == scale.ticks[0] else "grid"
        lines.append(element("line", x1=0, x2="100%", y1=y, y2=y, class_=base))
        lines.append(element("text", show(value), x=-8, y=y, dy="0.32em", class_="tick y"))
    return joined(lines)


def columns_axis(ticks: Sequence[Tick], height: int, lines: bool = True) -> Html:
    """Labels below the plot, and lines up from them."""
    drawn = []
    for tick in ticks:
        x = percent(tick.at)
        side = " first" if tick.at < 0.03 else " last" if tick.at > 0.97 else ""
        minor = " minor" if tick.minor else ""
        if lines:
            drawn.append(element("line", x1=x, x2=x, y1=0, y2=height, class_="grid"))
        if tick.text:
            drawn.append(
                element("text", tick.text, x=x, y=height + 17, class_=f"tick x{side}{minor}")
            )
    return joined(drawn)


def meter(part: float, kind: str = "") -> Html:
    """A bar that fills a part of a table's cell, beside a number that says the same."""
    bar = element("rect", width=percent(min(max(drawable(part), 0.0), 1.0)), height=10, rx=2)
    return element(
        "svg", bar, class_=f"meter {kind}".strip(), width="100%", height=10, aria_hidden="true"
    )


def ranges(rows: Sequence[Range], what: str, show: Show) -> Html:
    """Horizontal bars: p50 to p90 dark, to p99 light, and a thin line to the largest value."""
    scale = fitting([value for row in rows for value in (row.p50, row.p90, row.p99, row.max)])
    height = _ROW * len(rows)
    drawn = [columns_axis(_value_ticks(scale, show), height)]
    for at, row in enumerate(rows):
        middle = _ROW * at + _ROW // 2
        p50, p90, p99, most = (scale.at(value) for value in (row.p50, row.p90, row.p99, row.max))
        told = ", ".join(
            f"{name} {show(value)}"
            for name, value in (("p50", row.p50), ("p90", row.p90), ("p99", row.p99))
        )
        x1, x2 = percent(p50), percent(max(most, p50))
        drawn += [
            element("text", row.name, x=-8, y=middle, dy="0.32em", class_="tick y name"),
            element("line", x1=x1, x2=x2, y1=middle, y2=middle, class_="whisker"),
            _bar(p90, p99, middle, "seldom"),
            _bar(p50, p90, middle, "usual"),
            element("circle", cx=x1, cy=middle, r=5, class_="middle"),
            _hover(
                0, 1, _ROW, f"{row.name}: {told}, largest {show(row.max)}", top=middle - _ROW // 2
            ),
        ]
    return figure(what, height, *drawn, class_="plot ranges")


def histogram(data: Histogram, what: str, show: Show = short_count, whole: bool = True) -> Html:
    """Vertical bars with the upper bounds below. `whole`: the values are whole numbers."""
    height = 130
    bounds = [bin_.upto for bin_ in data.bins]
    filled = [at for at, bin_ in enumerate(data.bins) if bin_.count > 0]
    if not filled:
        return Html("")
    shown = range(filled[0], filled[-1] + 1)
    scale = linear([data.bins[at].count for at in shown], 3, whole=True)
    labels = [_bin_label(bounds, at, show, whole) for at in shown]
    wanted = (max(map(len, labels)) * _CHARACTER + 6) * len(labels)  # pixels
    every, seldom = ceil(wanted / _WIDER), ceil(wanted / _NARROWEST)
    seldom = ceil(seldom / every) * every
    bars: list[Html] = []
    ticks: list[Tick] = []
    for place, at in enumerate(shown):
        bin_ = data.bins[at]
        tall = height * scale.at(bin_.count)
        left, wide = place / len(shown), 1 / len(shown)
        told = f"{labels[place]}: {count(bin_.count)} ({share(bin_.count / max(data.count, 1))})"
        bars += [
            element(
                "rect",
                x=percent(left + wide * 0.08),
                width=percent(wide * 0.84),
                y=coordinate(height - tall),
                height=coordinate(tall),
                class_="bar",
            ),
            _hover(left, wide, height, told),
        ]
        if place % every == 0:
            # The last label of narrow bars would reach beyond the plot.
            is_end = place == len(shown) - 1 > _FEW
            ticks.append(Tick(1 if is_end else left + wide / 2, labels[place], place % seldom != 0))
    return figure(
        what,
        height,
        rows_axis(scale, height, short_count),
        *bars,
        columns_axis(ticks, height, lines=False),
        class_="plot histogram",
    )


def strip(labels: Sequence[str], shares: Sequence[float], most: float, what: str) -> Html:
    """A row of cells, the denser the stronger; one with a density of `most` is strongest."""
    height = 28
    cells = [element("rect", width="100%", height=height, class_="track")]
    for at, value in enumerate(shares):
        # With the root, that there is some work is visible beside much of it.
        strength = sqrt(density(value, len(shares)) / most) if most > 0 else 0.0
        told = f"{labels[at]}: {share(value)}" if at < len(labels) else share(value)
        cells.append(
            element(
                "rect",
                element("title", told),
                x=percent(at / len(shares)),
                width=percent(1 / len(shares)),
                height=height,
                class_="cell",
                fill_opacity=coordinate(min(strength, 1.0)),
            )
        )
    return figure(what, height, *cells, class_="strip")


def density(part: float, parts: int) -> float:
    """A share over the share that it would have if all `parts` had the same."""
    return drawable(part) * parts


def hover_columns(columns: Iterable[tuple[float, float, str]], height: int) -> Html:
    """Invisible columns (begin, width, text) that show their text under the pointer."""
    return joined(_hover(begin, width, height, text) for begin, width, text in columns)


def legend(entries: Iterable[tuple[str, str]]) -> Html:
    """Names of colours: pairs of the colour's class and what it stands for."""
    items = [
        element("li", element("span", class_=f"key {class_}", aria_hidden="true"), text)
        for class_, text in entries
    ]
    return element("ul", *items, class_="legend")


def summary(data: Histogram, one: str, show: Show) -> str:
    """A histogram in a sentence."""
    return (
        f"{plural(data.count, one)}. Mean {show(data.mean)}, p50 {show(data.p50)},"
        f" p90 {show(data.p90)}, p99 {show(data.p99)}, largest {show(data.max)}."
    )


def _hover(left: float, wide: float, height: int, text: str, top: int = 0) -> Html:
    return element(
        "rect",
        element("title", text),
        x=percent(left),
        width=percent(wide),
        y=top,
        height=height,
        class_="hover",
    )


def _bar(begin: float, end: float, middle: int, class_: str) -> Html:
    return element(
        "rect",
        x=percent(begin),
        width=percent(max(end - begin, 0.0)),
        y=middle - _BAR // 2,
        height=_BAR,
        class_=class_,
    )


def _value_ticks(scale: Scale, show: Show) -> list[Tick]:
    return [
        Tick(scale.at(value), show(value), minor=at % 2 == 1)
        for at, value in enumerate(scale.ticks)
    ]


def _bin_label(bounds: Sequence[float], at: int, show: Show, whole: bool) -> str:
    upper = bounds[at]
    if whole and (upper == 0 or (at > 0 and bounds[at - 1] == upper - 1)):
        return show(upper)
    return f"≤{SPACE}{show(upper)}"


def _short(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
