"""What all sections of the settings have in common, and how their values are written."""

import json
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """A section of the settings: `[etcd]`, `[limits]` and so on in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def parse_list(value: Any) -> Any:
    """A list in an environment variable is written with commas, or as JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return parse_json(value)
    return [part.strip() for part in value.split(",") if part.strip()]


def parse_json(value: Any) -> Any:
    """A table in an environment variable is written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # The message does not repeat the value: it may be a secret.
        raise ValueError("this is not JSON") from None


def parse_ports(value: Any) -> Any:
    """The first and the last port of a range, which is written FIRST-LAST, or PORT."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", value)
    if not found:
        raise ValueError("this is neither a port nor a range of ports such as 9650-9681")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 0 < first <= last:
        raise ValueError("a range of ports goes from its first to its last, such as 9650-9681")
    return first, last


Names = Annotated[tuple[str, ...], BeforeValidator(parse_list)]
Port = Annotated[int, Field(ge=0, le=65535)]
PortRange = Annotated[tuple[Port, Port], BeforeValidator(parse_ports)]
