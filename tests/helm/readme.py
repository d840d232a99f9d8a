"""Makes the files of the chart that follow from other files: `make chart`.

- README.md from the comments in values.yaml;
- `settings` in values.schema.json from the settings of dzflow;
- the Grafana dashboard and the alerts from `monitor/`: Helm packs only what is in the chart.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from tests.helm.settings_schema import settings_schema
from tests.helm.tool import CHART, ROOT

COPIES: Mapping[str, str] = {
    "files/grafana.json": "monitor/grafana/dzflow.json",
    "files/alerts.yaml": "monitor/alerts/dzflow.yaml",
}

_HEAD = """\
# The chart dzflow

It installs dzflow on Kubernetes 1.29 or later. [Deploy on Kubernetes](../../docs/how-to/deploy.md)
leads from an empty cluster to the first delivered event.

    helm install dzflow helm/dzflow --namespace dzflow --create-namespace

`ci/` has values for typical installations. `make chart` makes this page from the comments in
`values.yaml`.
"""
_LINE = re.compile(r"( *)(#|[\w./-]+:) ?(.*)")


class NoComment(ValueError):
    """A value has no comment."""


class Value(Struct):
    """A value of the chart: its path, its comment, and its default."""

    path: str
    comment: str
    default: Any
    is_section: bool


def values(text: str) -> Iterator[Value]:
    """All values of a values file, sections too, in their order."""
    parsed = yaml.safe_load(text)
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    flat = -1  # the indentation of a value whose members have no comments
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if not found:
            continue
        indent, name = len(found[1]), found[2]
        if 0 <= flat < indent:
            continue
        flat = -1
        if name == "#":
            comment.append(found[3])
            continue
        path = [*((at, each) for at, each in path if at < indent), (indent, name[:-1])]
        names = [each for _, each in path]
        default = parsed
        for each in names:
            default = default[each]
        is_section = isinstance(default, dict) and default and not found[3]
        if names[-1] == "resources":
            is_section, flat = False, indent
        if not comment and not is_section:
            raise NoComment(f"{'.'.join(names)} has no comment")
        yield Value(".".join(names), " ".join(comment), default, bool(is_section))
        comment = []


def readme() -> str:
    """The page that describes all values."""
    lines = [_HEAD, "## Values\n", "| value | default | meaning |", "| --- | --- | --- |"]
    for each in values((CHART / "values.yaml").read_text()):
        if each.is_section and each.comment:
            lines.append(f"| **`{each.path}`** |  | {each.comment} |")
        elif not each.is_section:
            lines.append(f"| `{each.path}` | `{_written(each.default)}` | {each.comment} |")
    return "\n".join(lines) + "\n"


def schema() -> str:
    """The schema of values, with the current settings."""
    found = json.loads((CHART / "values.schema.json").read_text())
    found["properties"]["settings"] = settings_schema()
    return json.dumps(found, indent=2) + "\n"


def made_files() -> dict[Path, str]:
    """Every file that is made, with what it should hold."""
    copies = {CHART / name: (ROOT / source).read_text() for name, source in COPIES.items()}
    return {CHART / "README.md": readme(), CHART / "values.schema.json": schema(), **copies}


def _written(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()
    return text.removesuffix("...").strip()


def main() -> int:
    """Write all files."""
    for path, text in made_files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
