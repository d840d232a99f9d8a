"""The table of all settings for docs/reference/configuration.md; run to write it into that file."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from api.start.settings import PREFIX, Settings

BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->\n"


def table() -> str:
    """All settings, in Markdown."""
    lines = ["| setting | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for path, default, meaning in _rows(Settings, ()):
        variable = PREFIX + "__".join(path).upper()
        lines.append(f"| `{'.'.join(path)}` | `{variable}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def _rows(model: type[BaseModel], before: tuple[str, ...]) -> Iterator[tuple[Any, str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _rows(kind, (*before, name))
            continue
        choices = [f"`{each}`" for each in get_args(kind) if isinstance(each, str)]
        meaning = field.description or ""
        if choices:
            meaning = f"{', '.join(choices)}: {meaning}"
        yield (*before, name), _shown(field.default), meaning


def _shown(default: Any) -> str:
    if default in (None, (), {}) or default is PydanticUndefined:
        return ""
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        default = str(default).lower()
    return f"`{default}`"


def main(path: Path) -> None:
    """Put the table between its marks in a file."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(before + BEGIN + table() + END + after)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
