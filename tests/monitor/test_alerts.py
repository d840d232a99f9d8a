"""The alert rules: they ask for what the service really shows, and say what to do."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from tests.monitor.support import check_aggregation, check_names, unit_of
from tests.promql import COMPARISONS, read

ROOT = Path(__file__).parents[2]
FILE = ROOT / "monitor/alerts/dzflow.yaml"
GROUPS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]

_DURATION = re.compile(r"[1-9][0-9]*[smh]")
_TEMPLATE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_SHOWN_AS = {
    "seconds": {"$value | humanizeDuration"},
    "ratio": {"$value | humanizePercentage"},
    "bytes": {"$value | humanize1024"},
}
_A_COUNT = {"$value", "$value | humanize"}


def by_name(rule: Mapping[str, Any]) -> str:
    return str(rule["alert"])


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_a_rule_asks_for_metrics_that_exist(
    rule: Mapping[str, Any], shown: Mapping[str, Metric]
) -> None:
    found = read(rule["expr"])
    check_names(found, shown)
    check_aggregation(found)


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_a_threshold_and_the_text_fit_the_unit(rule: Mapping[str, Any]) -> None:
    found = read(rule["expr"])
    if "absent" in rule["expr"]:
        return
    unit, threshold = unit_of(found), found.threshold
    assert threshold is not None
    (comparison,) = [sign for sign in found.operators if sign in COMPARISONS]
    if unit == "0 or 1":
        assert comparison == "=="
        assert threshold in (0, 1)
    else:
        assert comparison == ">"
    if unit == "ratio":
        assert 0 < threshold < 1
    if unit == "seconds":
        assert threshold < 60  # nobody means milliseconds
    allowed = _SHOWN_AS.get(unit, _A_COUNT)
    for text in rule["annotations"].values():
        values = {each for each in _TEMPLATE.findall(text) if each.startswith("$value")}
        assert values <= allowed


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_a_rule_says_how_bad_it_is_and_what_to_do(rule: Mapping[str, Any]) -> None:
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["alert"].startswith("Dzflow")
    assert _DURATION.fullmatch(rule["for"])
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    notes = rule["annotations"]
    assert notes.keys() == {"summary", "description"}
    assert not notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    assert len(notes["description"]) > 80


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_a_text_names_labels_that_the_rule_keeps_and_pages_that_exist(
    rule: Mapping[str, Any],
) -> None:
    grouped = read(rule["expr"]).grouped
    text = " ".join(rule["annotations"].values())
    for each in _TEMPLATE.findall(text):
        if each.startswith("$labels."):
            assert each.removeprefix("$labels.") in grouped
    for page in re.findall(r"docs/[\w/-]+\.md", text):
        assert (ROOT / page).exists()


def test_names_are_unique() -> None:
    names = [by_name(rule) for rule in RULES]
    assert len(set(names)) == len(names)
    assert len({group["name"] for group in GROUPS}) == len(GROUPS)


def test_names_in_texts_are_settings() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text()
    for rule in RULES:
        for name in re.findall(r"`([a-z]+\.[a-z_]+)`", rule["annotations"]["description"]):
            assert f"| `{name}` |" in page, name
