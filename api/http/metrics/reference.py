"""The tables of docs/reference/metrics.md; run it to write them into that file."""

import sys
from pathlib import Path

from api.http.metrics.catalogue import LABELS, SECTIONS, MetricSpec

BEGIN, END = "<!-- metrics -->\n\n", "\n<!-- end of metrics -->\n"
_ORIGINS = {"process": "each", "system": "all"}
_HEAD = (
    "| metric | type | unit | labels | of | meaning |",
    "| --- | --- | --- | --- | --- | --- |",
)


def tables() -> str:
    """All metrics in Markdown, one table for each section, and one for the labels."""
    parts = []
    for section in SECTIONS:
        rows = [_row(spec) for spec in section.metrics]
        parts.append("\n".join((f"## {section.title}\n", *_HEAD, *rows)) + "\n")
    labels = [f"| `{name}` | {text} |" for name, text in LABELS.items()]
    head = "## Labels\n\n| label | values |\n| --- | --- |"
    parts.append("\n".join((head, *labels)) + "\n")
    return "\n".join(parts)


def _row(spec: MetricSpec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    cells = (f"`{spec.name}`", spec.type, spec.unit, labels, _ORIGINS[spec.origin], spec.text)
    return f"| {' | '.join(cells)} |"


def main(path: Path) -> None:
    """Replace the tables between the marks in a file."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(before + BEGIN + tables() + END + after)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
