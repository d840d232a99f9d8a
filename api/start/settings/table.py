"""The tables of docs/reference/configuration.md; run it to write them into that file."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from api.start.settings.settings import PREFIX, Settings

BEGIN, END = "<!-- settings -->\n\n", "\n<!-- end of settings -->\n"


def table() -> str:
    """All settings in Markdown: one table for the first level, and one for each section."""
    top = [name for name in Settings.model_fields if _section(name) is None]
    parts = [_rows(Settings, top, ())]
    for name in Settings.model_fields:
        if section := _section(name):
            text = (section.__doc__ or "").strip()
            rows = _rows(section, section.model_fields, (name,))
            parts.append(f"### `[{name}]`\n\n{text}\n\n{rows}")
    return "\n".join(parts)


def _section(name: str) -> type[BaseModel] | None:
    kind = Settings.model_fields[name].annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _rows(model: type[BaseModel], names: Iterable[str], before: tuple[str, ...]) -> str:
    lines = ["| setting | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for name in names:
        field = model.model_fields[name]
        path = (*before, name)
        variable = PREFIX + "__".join(path).upper()
        choices = [f"`{each}`" for each in get_args(field.annotation) if isinstance(each, str)]
        meaning = ": ".join(filter(None, (", ".join(choices), field.description)))
        default = _shown(field.default)
        lines.append(f"| `{'.'.join(path)}` | `{variable}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default in (None, (), {}) or default is PydanticUndefined:
        return ""
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        default = str(default).lower()
    return f"`{default}`"


def main(path: Path) -> None:
    """Replace the tables between the marks in a file."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(before + BEGIN + table() + END + after)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
