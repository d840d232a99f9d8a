"""The page of a report: well-formed, self-contained, and safe with strangers' text."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spark.report.model import Bucket, LoadRow, Report, Skew, Timeline
from spark.report.page import render
from spark.traces import SkippedFile
from tests.spark.reports import BEGIN_US, FILTER, empty_report, example_report, one_row_report

_HOSTILE = """<script>alert(1)</script>"'&"""
_VOID = {"meta", "br"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LOADING = {"src", "srcset", "data", "action", "poster", "background", "ping", "xlink:href"}


@dataclass
class _Page(HTMLParser):
    """What a browser would find on a page; a tag that is not closed in order is an error."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def _parse(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


def _plain(html: str) -> str:
    """What a reader sees, with ordinary spaces."""
    page = _parse(html[html.index("<main>") : html.index("</body>")])
    return " ".join("\n".join(page.text).replace("\N{NO-BREAK SPACE}", " ").split())


def _mapped(report: Report, change: Callable[[Any], Any]) -> Report:
    """The report with every string and number changed; the number of its rows stays above 0."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {change(key): walk(each) for key, each in value.items()}
        return [walk(each) for each in value] if isinstance(value, list) else change(value)

    def changed(value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            members = {name: changed(getattr(value, name)) for name in value.__struct_fields__}
            return type(value)(**members)
        if isinstance(value, tuple):
            return tuple(changed(each) for each in value)
        return walk(value)

    found: Report = changed(report)
    return replace(found, source=replace(found.source, rows=max(1, found.source.rows)))


def _with_text(report: Report, text: str) -> Report:
    return _mapped(report, lambda value: text if isinstance(value, str) else value)


def _with_floats(report: Report, number: float) -> Report:
    return _mapped(report, lambda value: number if isinstance(value, float) else value)


def _with_whole(report: Report, number: int) -> Report:
    return _mapped(report, lambda value: number if isinstance(value, int) else value)


@pytest.mark.parametrize(
    "report",
    [example_report(), one_row_report(), empty_report(), Report(one_row_report().source)],
    ids=["example", "one row", "empty", "a source only"],
)
def test_a_page_is_well_formed_and_accessible(report: Report) -> None:
    html = render(report)
    page = _parse(html)
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(link["href"].removeprefix("#") in ids for link in page.all("a"))
    assert all(head["scope"] in ("col", "row", "colgroup") for head in page.all("th"))
    plots = [plot for plot in page.all("svg") if "viewbox" not in plot]
    assert all(plot.get("aria-label") or plot.get("aria-hidden") for plot in plots)
    assert [tag for tag, _ in page.tags].count("h1") == 1


def test_every_row_of_a_table_has_a_cell_for_each_column() -> None:
    for table in re.findall(r"<table>.*?</table>", render(example_report())):
        head, body = table.split("<tbody>")
        columns = head.count('scope="col"')
        for row in re.findall(r"<tr>.*?</tr>", body):
            spanned = re.search(r'colspan="(\d+)"', row)
            cells = int(spanned[1]) if spanned else row.count("<td") + row.count("<th")
            assert cells == columns


def test_a_page_needs_nothing_from_elsewhere() -> None:
    html = render(example_report())
    page = _parse(html)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not any(set(attributes) & _LOADING for _, attributes in page.tags)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert all(link["href"].startswith("#") for link in page.all("a"))
    assert not re.search(r"url\(|@import|https?:|//[a-z]", html)
    policy = {"http-equiv": "Content-Security-Policy", "content": _POLICY}
    assert policy in page.all("meta")


def test_strangers_text_is_escaped_everywhere() -> None:
    report = _with_text(example_report(), _HOSTILE)
    html = render(report)
    page = _parse(html)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 100
    expected = {tag for tag, _ in _parse(render(example_report())).tags}
    assert {tag for tag, _ in page.tags} <= expected
    known = {name for _, attributes in _parse(render(example_report())).tags for name in attributes}
    assert {name for _, attributes in page.tags for name in attributes} <= known


@pytest.mark.parametrize("end", ['" onmouseover="alert(1)', "' x='", "</title>", "</style>", "-->"])
def test_strangers_text_cannot_leave_its_place(end: str) -> None:
    hostile, harmless = (_parse(render(_with_text(example_report(), t))) for t in (end, "x" * 9))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    assert not any("onmouseover" in attributes for _, attributes in hostile.tags)


def test_invisible_characters_are_shown_and_lone_surrogates_can_be_written() -> None:
    html = render(_with_text(one_row_report(), "a\u202eb\x00\ud800"))
    assert html.encode()
    assert "a\\u202eb\\x00\\ud800" in html


def test_a_long_filter_is_shortened_and_can_be_unfolded() -> None:
    page = _parse(render(example_report()))
    assert FILTER in page.text
    assert f"{FILTER[:79]}…{FILTER[-40:]}" in page.text


def test_a_filter_of_any_length_does_not_make_the_page_endless() -> None:
    html = render(_with_text(example_report(), "x" * 100_000))
    assert len(html) < 2_000_000
    assert "(80,000 more characters)" in html


def test_the_headline_says_what_when_and_how_many() -> None:
    text = _plain(render(example_report()))
    assert "Request traces 2026-03-04 11:02:05 to 13:02:09 UTC" in text
    assert "86,202 requests in 2 h (198,265 partials, one row each, in 49 files)" in text
    assert "0.18 % failed (152)." in text
    assert "2 files were skipped ( which and why )" in text
    assert "12 rows end before the request arrived" in text
    assert "The space `old` is not described in the traces" in text


def test_sections_come_most_useful_first() -> None:
    html = render(example_report())
    ids = re.findall(r'<section id="(\w+)"', html)
    assert ids == [
        *("timeline", "kinds", "latency", "partitions", "configurators", "skew", "hot", "heat"),
        *("sizes", "churn", "hosts", "expensive", "skipped"),
    ]
    assert html.index('class="tiles"') < html.index('id="timeline"')


def test_skew_is_said_in_words() -> None:
    text = _plain(render(example_report()))
    assert "The busiest of 24 partitions has 4.6 times the mean work." in text
    assert (
        "The busiest of 1,420 hosts that had work has 61.2 times the mean number of requests."
        in text
    )


def test_partitions_are_in_the_order_of_their_work_and_say_how_many_are_left_out() -> None:
    report = example_report()
    few = replace(
        report,
        partitions=tuple(reversed(report.partitions[:3])),
        skew=(Skew("partitions", 24, 4.6, 0.3),),
    )
    text = _plain(render(few))
    places = [text.index(row.name) for row in report.partitions[:3]]
    assert places == sorted(places)
    assert "These are the 3 busiest of 24 partitions." in text


def test_without_rows_the_page_says_what_to_check() -> None:
    html = render(empty_report())
    text = _plain(html)
    assert "The traces have no rows" in text
    assert "<data-dir>/traces/requests/" in text
    assert "No file of traces was found." in text
    assert "<svg" not in html
    assert "Timeline" not in text


def test_without_rows_skipped_files_are_still_named() -> None:
    text = _plain(render(empty_report(SkippedFile("a.parquet", "no footer"))))
    assert "1 file found." in text
    assert "a.parquet no footer" in text


def test_sections_without_data_say_so() -> None:
    text = _plain(render(Report(one_row_report().source)))
    for words in ("There is no timeline", "No partition had work.", "There are no hosts."):
        assert words in text


def test_one_row_makes_a_whole_page() -> None:
    text = _plain(render(one_row_report()))
    assert "1 request in 9.1 ms (1 partial, one row each, in 1 file). None failed." in text
    assert "Only one partition had work." in text


@pytest.mark.parametrize("number", [1e300, 1e18, 1e-300, 0.0, -3.5, math.nan, math.inf, -math.inf])
def test_any_number_can_be_drawn(number: float) -> None:
    html = render(_with_floats(example_report(), number))
    _check_drawn(html)


@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_any_whole_number_can_be_drawn(number: int) -> None:
    html = render(_with_whole(example_report(), number))
    _check_drawn(html)


def _check_drawn(html: str) -> None:
    """Plots have finite coordinates within their frame, and no text is a row of digits."""
    page = _parse(html)
    for tag, attributes in page.tags:
        if tag in ("rect", "line", "circle", "path", "text"):
            drawn = " ".join(
                attributes.get(name, "") for name in ("x", "y", "width", "height", "d")
            )
            assert not re.search(r"nan|inf|e[+-]", drawn)
        if tag == "rect":
            assert not attributes["width"].startswith("-")
            assert float(attributes["width"].rstrip("%")) <= 100
    assert not any(re.search(r"\bnan\b|\binf\b|\d{30}", text) for text in page.text)


def test_the_timeline_spans_gaps_of_years() -> None:
    year = 365 * 86_400 * 1_000_000
    buckets = tuple(
        Bucket(BEGIN_US + at * year, {"subscribe": 3, "dance": 1}, 0, 1.0, 2.0) for at in range(3)
    )
    html = render(replace(example_report(), timeline=Timeline(86_400.0, buckets)))
    text = _plain(html)
    assert re.search(r"\w{3} 2027", text)
    assert "dance" in text
    assert html.count("h0") == 6  # lone buckets are dots on both lines


def test_a_request_whose_clock_was_set_back_has_no_latency() -> None:
    report = one_row_report()
    unknown = replace(report.expensive[0], total_ms=None)
    text = _plain(render(replace(report, expensive=(unknown,))))
    assert "a1 400 µs – 1 1 1 subscribe" in text


def test_a_load_without_work_has_no_bars() -> None:
    idle = LoadRow("all", "stocks", 1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    html = render(replace(one_row_report(), partitions=(idle,), configurators=()))
    assert "No configurator had work." in _plain(html)


def test_the_same_report_gives_the_same_page() -> None:
    assert render(example_report()) == render(example_report())
