"""Tables: the first cell of a row names it, numbers are aligned, wide tables scroll."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from spark.report.drawing.markup import Html, element, joined
from spark.report.drawing.plots import meter
from spark.report.drawing.text import plural, share

_SHOWN = 12  # rows; what is more is folded


@dataclass(frozen=True)
class Column:
    """A column. Neighbours of one `group` have a common title above their own."""

    title: str
    kind: str = "number"  # number, text or bar
    group: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Row:
    """The cells of a row, and what is written below them across the table."""

    cells: Sequence[str]
    note: Html | None = None


def table(caption: str, columns: Sequence[Column], rows: Sequence[Row]) -> Html:
    """A table. Its caption is for those who do not see the headline above it."""
    body = [line for row in rows for line in _lines(columns, row)]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", *_head(columns)),
            element("tbody", *body),
        ),
        class_="scroll",
        role="region",
        tabindex=0,
        aria_label=caption,
    )


def foldable(caption: str, columns: Sequence[Column], rows: Sequence[Row], one: str) -> Html:
    """A table of the first rows; the others, if there are many, unfold below it."""
    if len(rows) <= _SHOWN + 3:
        return table(caption, columns, rows)
    rest = rows[_SHOWN:]
    more = element(
        "details",
        element("summary", f"{plural(len(rest), f'more {one}')}"),
        table(f"{caption}, the rest", columns, rest),
        class_="more",
    )
    return joined([table(caption, columns, rows[:_SHOWN]), more])


def share_bar(value: float, most: float, kind: str = "") -> Html:
    """A share as a number and as a bar, which is full at `most`."""
    part = value / most if most > 0 else 0.0
    return element("div", element("span", share(value)), meter(part, kind), class_="share")


def _head(columns: Sequence[Column]) -> list[Html]:
    if not any(column.group for column in columns):
        return [element("tr", *(_title(column) for column in columns))]
    above: list[Html] = []
    for group, members in groupby(columns, key=lambda column: column.group):
        if group:
            width = len(list(members))
            above.append(element("th", group, colspan=width, scope="colgroup", class_="group"))
        else:
            above += [_title(column, rowspan=2) for column in members]
    below = [_title(column) for column in columns if column.group]
    return [element("tr", *above), element("tr", *below)]


def _title(column: Column, rowspan: int | None = None) -> Html:
    return element(
        "th",
        column.title,
        scope="col",
        rowspan=rowspan,
        class_=column.kind,
        title=column.hint or None,
    )


def _lines(columns: Sequence[Column], row: Row) -> list[Html]:
    cells = [element("th", row.cells[0], scope="row", class_=columns[0].kind)]
    cells += [
        element("td", cell, class_=column.kind)
        for column, cell in zip(columns[1:], row.cells[1:], strict=True)
    ]
    lines = [element("tr", *cells)]
    if row.note is not None:
        below = element("td", element("div", row.note), colspan=len(columns), class_="note")
        lines.append(element("tr", below))
    return lines
