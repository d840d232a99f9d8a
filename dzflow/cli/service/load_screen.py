"""The screen of `dzflow top`: the load of one moment as text, whatever the size of the terminal."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from rich.console import Console, ConsoleRenderable, Group
from rich.text import Text

from dzflow.cli.tables import fitting_table, plain
from dzflow.text import printable

Sort = Literal["load", "queue", "rate", "wait", "ops"]

SORT_KEYS: Mapping[str, Sort] = {"l": "load", "n": "queue", "r": "rate", "w": "wait", "o": "ops"}
"""The keys that change the order of the partitions."""

_MEMBERS: Mapping[Sort, str] = {
    "load": "utilisation",
    "queue": "queued",
    "rate": "done_per_s",
    "wait": "wait_ms",
    "ops": "flow_ops_per_s",
}

_COLOURS = {"ready": "green", "degraded": "yellow"}


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _mib(value: float) -> str:
    return f"{value / (1 << 20):,.0f} MiB"


_Column = tuple[str, str, Callable[[Any], str]]
"""Title, member of the load, and how a value is shown."""

_WORK: Sequence[_Column] = (
    ("queue", "queued", _count),
    ("oldest s", "oldest_s", _tenths),
    ("in/s", "arrivals_per_s", _count),
    ("done/s", "done_per_s", _count),
    ("wait ms", "wait_ms", _tenths),
    ("decide ms", "decide_ms", _tenths),
    ("push ms", "push_ms", _tenths),
    ("ops/s", "flow_ops_per_s", _count),
    ("undefined", "undefined", _count),
    ("active", "active", _count),
    ("entries", "entries", _count),
)
_CONFIGURATORS: Sequence[_Column] = (
    ("configurator", "id", plain),
    ("cpu", "cpu", _percent),
    ("memory", "memory", _mib),
    ("partitions", "partitions", _count),
    *_WORK,
)
_PARTITIONS: Sequence[_Column] = (
    ("partition", "id", plain),
    ("configurator", "configurator", plain),
    ("load", "utilisation", _percent),
    *_WORK,
)
_LESSER = (
    *("active", "entries", "decide ms", "undefined", "push ms", "oldest s", "partitions"),
    *("ops/s", "wait ms", "memory"),
)
"""Columns that narrow terminals do without, the least important first."""


class LoadScreen:
    """Draws the load, in the order that `sort` says. `height`: lines there are, if bounded."""

    def __init__(self, console: Console, sort: Sort, height: int | None = None) -> None:
        self._console = console
        self._sort = sort
        self._height = height

    def draw(self, load: dict[str, Any], ready: dict[str, Any]) -> ConsoleRenderable:
        """The load that `GET /load` gives for an interval, with what `GET /readyz` says."""
        head = [_state_line(load, ready), *_total_lines(load)]
        height = None if self._height is None else self._height - len(head)
        configurators = sorted(load["configurators"], key=lambda one: one["id"])
        # Partitions get at least two thirds.
        first, used = self._table(_CONFIGURATORS, configurators, height and height // 3)
        rest = None if height is None else height - used
        partitions = in_order(load["partitions"], self._sort)
        second, _ = self._table(_PARTITIONS, partitions, rest)
        return Group(*head, *first, *second)

    def _table(
        self, columns: Sequence[_Column], items: Sequence[dict[str, Any]], height: int | None
    ) -> tuple[list[ConsoleRenderable], int]:
        """A table below an empty line, and how many lines both have, at most `height`."""
        room = len(items) if height is None else max(1, height - 2)  # without title and blank
        left = len(items) - room
        if left > 0:
            room -= 1  # for the line that says how many are left
            left += 1
        rows = [
            {title: _cell(item.get(member), show) for title, member, show in columns}
            for item in items[: max(room, 0)]
        ]
        titles = [title for title, _, _ in columns]
        names = [title for title, _, show in columns if show is plain]
        numbers = [title for title in titles if title not in names]
        lesser = [title for title in _LESSER if title in titles]
        table, _ = fitting_table(self._console, rows, titles, lesser, numbers)
        lines: list[ConsoleRenderable] = [Text(), table]
        if left > 0:
            lines.append(Text(f"{left:,} more"))
        return lines, len(rows) + len(lines)


def in_order(partitions: Sequence[dict[str, Any]], sort: Sort) -> list[dict[str, Any]]:
    """The partitions, those with the most first; equal ones by queue, then by id."""
    member = _MEMBERS[sort]
    return sorted(
        partitions, key=lambda one: (-(one.get(member) or 0.0), -one["queued"], one["id"])
    )


def _cell(value: Any, show: Callable[[Any], str]) -> str:
    return "-" if value is None else show(value)


def _state_line(load: dict[str, Any], ready: dict[str, Any]) -> Text:
    at = datetime.fromtimestamp(load["at"]).astimezone()
    status = ready["status"]
    line = Text.assemble(f"{at:%H:%M:%S}  ", (printable(status), _COLOURS.get(status, "red")))
    impaired = ready["impaired_counts"]["total"]
    if impaired:
        line.append(f" ({impaired:,} impaired)")
    line.append(f"  partitions {ready['partitions_ready']:,}/{ready['partitions']:,} ready")
    line.append(f"  switches {ready['switches_up']:,}/{ready['switches']:,} up")
    return line


def _total_lines(load: dict[str, Any]) -> list[Text]:
    total = load["total"]
    memory = sum(one["memory"] for one in load["configurators"])
    cpu = sum(one["cpu"] for one in load["configurators"])
    return [
        Text(
            f"tasks/s {_count(total['arrivals_per_s'])} in, {_count(total['done_per_s'])} done"
            f"  queue {_count(total['queued'])}, oldest {_tenths(total['oldest_s'])} s"
            f"  undefined {_count(total['undefined'])}"
        ),
        Text(
            f"flow ops/s {_count(total['flow_ops_per_s'])}"
            f"  entries {_count(total['entries'])}"
            f"  memory {_mib(memory)}  cpu {_percent(cpu)}"
        ),
    ]
