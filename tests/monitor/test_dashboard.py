"""The Grafana dashboard: it can be imported, and asks for what the service really shows."""

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from tests.monitor.support import check_aggregation, check_names, unit_of
from tests.promql import read

FILE = Path(__file__).parents[2] / "monitor/grafana/dzflow.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
WIDTH = 24  # columns of a dashboard
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

UNITS = {
    "s": {"seconds"},
    "bytes": {"bytes"},
    "percentunit": {"ratio"},
    "bool_yes_no": {"0 or 1"},
    "dateTimeFromNow": {"seconds"},  # times 1000, since 1970
}
"""What each of Grafana's units can show; the others show counts."""


def expressions() -> Iterator[Any]:
    for panel in GRAPHS:
        for target in panel["targets"]:
            unit = panel["fieldConfig"]["defaults"]["unit"]
            name = f"{panel['title']} {target['refId']}"
            yield pytest.param(target["expr"], unit, id=name)


@pytest.mark.parametrize(("text", "unit"), list(expressions()))
def test_a_panel_asks_for_metrics_that_exist(
    text: str, unit: str, shown: Mapping[str, Metric]
) -> None:
    found = read(text)
    check_names(found, shown)
    check_aggregation(found)
    assert all(
        any((m.label, m.sign, m.value) == ("job", "=", "$job") for m in series.matchers)
        for series in found.series
    )
    of = unit_of(found)
    if unit in UNITS:
        assert of in UNITS[unit]
    elif unit == "cpm":
        assert of.endswith(" per minute")
    elif unit in ("reqps", "ops", "cps"):
        assert of.endswith(" per second")
    else:
        assert unit == "short"
        assert of not in {"seconds", "bytes", "ratio"}
        assert " per " not in of


def test_grafana_can_import_the_dashboard() -> None:
    assert (BOARD["uid"], BOARD["title"]) == ("dzflow", "dzflow")
    assert BOARD["schemaVersion"] >= 39
    assert {"panels", "templating", "time", "tags", "version", "annotations"} <= BOARD.keys()
    assert "id" not in BOARD  # Grafana gives it one
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert {"type", "title", "gridPos"} <= panel.keys()
    for panel in GRAPHS:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["datasource"] == SOURCE
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names) > 0
        assert all(target["datasource"] == SOURCE for target in panel["targets"])


def test_panels_do_not_overlap() -> None:
    for one, other in combinations(PANELS, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one["title"], other["title"])
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= WIDTH
        assert place["h"] > 0


def test_the_rows_are_in_order() -> None:
    rows = [panel for panel in PANELS if panel["type"] == "row"]
    titles = [panel["title"] for panel in sorted(rows, key=lambda row: int(row["gridPos"]["y"]))]
    assert titles == ["Overview", "Requests", "Partitions", "Switches", "etcd and Ray"]


def test_every_variable_is_defined_and_used() -> None:
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "job", "space", "switch"}
    text = json.dumps(GRAPHS)
    for name, variable in variables.items():
        assert f"${name}" in text or f"${{{name}}}" in text
        if name == "datasource":
            assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
        else:
            assert variable["datasource"] == SOURCE


def test_variables_are_filled_from_metrics_that_exist(shown: Mapping[str, Metric]) -> None:
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            series, _, label = query.removeprefix("label_values(").removesuffix(")").rpartition(",")
            assert label.strip() == variable["name"]
            check_names(read(f"max by ({label.strip()}) ({series})"), shown)


def test_legends_name_labels_that_the_expression_keeps() -> None:
    for panel in GRAPHS:
        for target in panel["targets"]:
            wanted = {part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]}
            assert wanted <= read(target["expr"]).grouped, panel["title"]
