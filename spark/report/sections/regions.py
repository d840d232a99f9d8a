"""Sections on where in the spaces the work lies: hot regions, and the attributes' heat."""

from collections.abc import Sequence
from itertools import groupby

from spark.report.drawing.markup import Html, element
from spark.report.drawing.plots import density, meter, strip
from spark.report.drawing.scales import drawable
from spark.report.drawing.text import count, folded, milliseconds, name, plural, share, short
from spark.report.model import AttributeHeat, HotRegion, Report
from spark.report.sections.section import Section, lead, nothing

_SHOWN = 5  # regions of a space; what is more is folded
_TEXT = 300  # characters of a region in words; longer ones are folded
_LABEL = 80  # characters of a part of an attribute
_NEEDS = "This needs subscriptions, in spaces that the traces describe"


def hot(report: Report) -> Section:
    """Regions with much of the work, in words."""
    title = "Hot regions"
    if not report.hot:
        return Section("hot", title, [nothing(f"There is nothing to show. {_NEEDS}.")])
    text = (
        "Parts of a space that have much of the space's work. A partition map that divides them"
        " spreads their work."
    )
    parts: list[Html] = [lead(text)]
    for space, group in groupby(report.hot, key=lambda region: region.space):
        parts.append(element("h3", "Space ", name(space)))
        parts += _hot_lists([_hot_item(region) for region in group])
    return Section("hot", title, parts)


def heat(report: Report) -> Section:
    """A strip for each attribute: where on its range the work lies."""
    title = "Where the work lies on each attribute"
    if not report.heat:
        text = f"There is nothing to show. {_NEEDS}, with an index of kind `fields`."
        return Section("heat", title, [nothing(text)])
    most = max(
        (density(part, len(each.shares)) for each in report.heat for part in each.shares),
        default=0.0,
    )
    text = (
        "Each strip is the range of an attribute, from the lowest value to the highest, in equal"
        " parts: the stronger the colour, the more of its space's work. “Open” is the share of the"
        " work in regions that leave the attribute open."
    )
    parts: list[Html] = [lead(text)]
    for space, group in groupby(report.heat, key=lambda each: each.space):
        parts.append(element("h3", "Space ", name(space)))
        parts.append(element("div", *(_heat_row(each, most) for each in group), class_="heat"))
    return Section("heat", title, parts)


def _hot_lists(items: Sequence[Html]) -> list[Html]:
    if len(items) <= _SHOWN + 1:
        return [element("ol", *items, class_="hot")]
    rest = items[_SHOWN:]
    summary = element("summary", plural(len(rest), "more region"))
    more = element("details", summary, element("ol", *rest, class_="hot"), class_="more")
    return [element("ol", *items[:_SHOWN], class_="hot"), more]


def _hot_item(region: HotRegion) -> Html:
    head = element(
        "div",
        element("strong", share(region.share)),
        " of the work",
        element(
            "span",
            f"{plural(region.regions, 'region')}, {milliseconds(region.work_ms)} of work",
            class_="muted",
        ),
        class_="hot-head",
    )
    words = folded(region.text or "the whole space", _TEXT, "span")
    text = element("div", words, class_="hot-text")
    return element("li", head, text, meter(region.share))


def _heat_row(each: AttributeHeat, most: float) -> Html:
    labels = [short(label, _LABEL) for label in each.labels]
    told = _told(labels, each.shares)
    first, last = _ends(labels)
    below = element(
        "div",
        element("span", first, class_="low", title=first),
        element("span", told, class_="told"),
        element("span", last, class_="high", title=last),
        class_="ends",
    )
    return element(
        "div",
        element("div", name(each.attribute, 24), class_="heat-name"),
        element(
            "div",
            strip(labels, each.shares, most, f"{short(each.attribute)}: {told}"),
            below,
            class_="heat-strip",
        ),
        element(
            "div",
            element("div", "open ", element("strong", share(each.open))),
            meter(each.open, "open"),
            class_="heat-open",
        ),
        class_="heat-row",
    )


def _ends(labels: Sequence[str]) -> tuple[str, str]:
    return (labels[0], labels[-1] if len(labels) > 1 else "") if labels else ("", "")


def _told(labels: Sequence[str], shares: Sequence[float]) -> str:
    if not any(map(drawable, shares)):
        return "no region fixes it"
    hottest = max(range(len(shares)), key=lambda at: drawable(shares[at]))
    label = labels[hottest] if hottest < len(labels) else f"part {count(hottest + 1)}"
    return f"most at {label} ({share(shares[hottest])})"
