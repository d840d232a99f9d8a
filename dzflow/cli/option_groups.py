"""Groups of options that several commands share, each stated once as a dataclass; their error."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from dzflow.errors import BadInput


class BadOption(BadInput):
    """An option has no value that makes sense, or does not go with the others."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command for Typer: each parameter that is a dataclass becomes one option per field."""
    groups: dict[str, Any] = {}
    parameters = []
    for name, given in inspect.signature(command).parameters.items():
        kind = given.annotation
        if is_dataclass(kind):
            groups[name] = kind
            parameters += [
                inspect.Parameter(
                    each.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=each.default,
                    annotation=each.type,
                )
                for each in fields(kind)
            ]
        else:
            parameters.append(given.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{each.name: values.pop(each.name) for each in fields(kind)})
        command(**values)

    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run
