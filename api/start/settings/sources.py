"""Loads settings from a file, the environment and options; each overrides the one before."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from api.start.settings.secret_values import secrets_of
from api.start.settings.settings import PREFIX, BadSettings, Settings
from dzflow.process.private_files import find_exposure

CLIENT_VARIABLES = frozenset({"DZFLOW_URL", "DZFLOW_TOKEN", "DZFLOW_HOST", "DZFLOW_CA"})
"""Variables that are for the SDK and for the commands that talk to a running service."""
_OF_TESTS = frozenset({"DZFLOW_EXAMPLES"})


def load(
    config: Path | None = None,
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a file, the environment and options; BadSettings if they are not valid."""
    given = dict(os.environ if environment is None else environment)
    _check_variables(given)
    from_file = _read(config) if config else {}

    class Everywhere(Settings):
        model_config = SettingsConfigDict(env_nested_delimiter="__", enable_decoding=False)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            variables = EnvSettingsSource(settings_cls)
            variables.env_vars = {k.lower(): v for k, v in given.items()}
            return init_settings, variables, InitSettingsSource(settings_cls, from_file)

    found = _checked(Everywhere, dict(options or {}))
    # As plain settings, so that equal ones are equal wherever they come from.
    return Settings.model_construct(found.model_fields_set, **dict(found))


def find_exposed_secrets(config: Path, settings: Settings) -> str | None:
    """Which others can read the secrets in a file of settings; None if no others, or no secrets."""
    given = set(secrets_of(settings)) - set(secrets_of(Settings()))
    text = config.read_text()
    return find_exposure(config) if any(secret in text for secret in given) else None


def restore(revealed: Mapping[str, Any]) -> Settings:
    """Settings from what `Settings.revealed` gave."""
    return _checked(Settings, dict(revealed))


def _checked(kind: type[Settings], values: dict[str, Any]) -> Settings:
    try:
        return kind(**values)
    except ValidationError as error:
        raise BadSettings("; ".join(_describe(each) for each in error.errors())) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise BadSettings(f"{path}: {error.strerror or error}") from None
    try:
        if path.suffix.lower() == ".toml":
            values: Any = tomllib.loads(text)
        elif path.suffix.lower() in (".yaml", ".yml"):
            values = yaml.safe_load(text) or {}
        else:
            raise BadSettings(f"{path}: name it .toml, .yaml or .yml")
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path}: {' '.join(str(error).split())}") from None
    except yaml.YAMLError as error:
        # The error itself repeats lines of the file, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadSettings(f"{path}: this is not YAML{place}") from None
    if not isinstance(values, dict):
        raise BadSettings(f"{path}: settings are `name: value` pairs, this is something else")
    return values


def _check_variables(environment: Mapping[str, str]) -> None:
    """Refuse a misspelled variable, which would be ignored otherwise."""
    for name in environment:
        if name.startswith(PREFIX) and name not in CLIENT_VARIABLES | _OF_TESTS:
            first = name.removeprefix(PREFIX).partition("__")[0].lower()
            if first not in Settings.model_fields:
                near = _nearest(first, Settings.model_fields)
                raise BadSettings(f"{name}: there is no such setting{_hint(near, PREFIX)}")


def _describe(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        *groups, last = error["loc"]
        model: type[BaseModel] = Settings
        for name in groups:
            annotation = model.model_fields[str(name)].annotation
            assert isinstance(annotation, type)
            assert issubclass(annotation, BaseModel)
            model = annotation
        near = _nearest(str(last), model.model_fields)
        return f"{place}: there is no such setting{_hint(near, ''.join(f'{g}.' for g in groups))}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def _nearest(name: str, known: Mapping[str, Any]) -> str | None:
    found = difflib.get_close_matches(name.lower().replace("-", "_"), known, 1, 0.4)
    return found[0] if found else None


def _hint(near: str | None, before: str) -> str:
    if near is None:
        return "; docs/reference/configuration.md lists them"
    return f"; did you mean {before}{near.upper() if before == PREFIX else near}?"
