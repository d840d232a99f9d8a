"""The page of a report: one HTML document that needs no network, no script and no other file.

Plots are inline SVG of our own (see `drawing/plots.py`). The policy in the head forbids everything
but inline styles, so that even a mistake in escaping could not run or load anything.
"""

from collections.abc import Callable, Sequence

from spark.report.drawing.markup import Html, element
from spark.report.drawing.style import STYLE
from spark.report.drawing.text import span
from spark.report.model import Report
from spark.report.sections.empty import empty
from spark.report.sections.headline import headline, tiles
from spark.report.sections.load import configurators, partitions, skew
from spark.report.sections.regions import heat, hot
from spark.report.sections.requests import churn, expensive, hosts, sizes, skipped
from spark.report.sections.section import Section
from spark.report.sections.traffic import kinds, latency, timeline

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_SECTIONS: Sequence[Callable[[Report], Section | None]] = (
    *(timeline, kinds, latency),
    *(partitions, configurators, skew),
    *(hot, heat),
    *(sizes, churn, hosts, expensive, skipped),
)
"""In the order of the page: the most useful first."""


def render(report: Report) -> str:
    """The page: UTF-8 text, the same for the same report."""
    if report.source.rows == 0:
        made = [empty(report), skipped(report)]
        body = [headline(report)]
    else:
        made = [section(report) for section in _SECTIONS]
        body = [headline(report), tiles(report)]
    sections = [section for section in made if section is not None]
    if len(sections) > 2:
        body.append(_contents(sections))
    body += [section.draw() for section in sections]
    return f"<!DOCTYPE html>\n{_document(_title(report), body)}\n"


def _document(title: str, body: Sequence[Html]) -> Html:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(STYLE)),
    )
    main = element("main", *body)
    return element("html", head, element("body", main), lang="en")


def _title(report: Report) -> str:
    source = report.source
    when = span(source.begin_us, source.end_us) if source.rows else "no requests"
    return f"Request traces: {when}"


def _contents(sections: Sequence[Section]) -> Html:
    links = [
        element("li", element("a", section.title, href=f"#{section.id}")) for section in sections
    ]
    return element("nav", element("ul", *links), aria_label="Contents")
