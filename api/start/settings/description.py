"""The settings as `GET /settings` answers them: without secrets."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from api.http.schema.service import SettingOut, SettingsGroup, SettingsOut
from api.start.settings.secret_values import secrets_of
from api.start.settings.settings import PREFIX, Settings

_USER_OF_URL = re.compile(r"//[^/@\s]*@")


def describe(settings: Settings) -> SettingsOut:
    """All settings, those of the first level before the sections."""
    sections = {
        name: value for name, value in dict(settings).items() if isinstance(value, BaseModel)
    }
    top = [name for name in type(settings).model_fields if name not in sections]
    groups = [SettingsGroup("", "", _items(settings, top, ()))]
    for name, section in sections.items():
        text = (section.__doc__ or "").strip()
        items = _items(section, type(section).model_fields, (name,))
        groups.append(SettingsGroup(name, text, items))
    return SettingsOut(groups)


def _items(model: BaseModel, names: Iterable[str], before: tuple[str, ...]) -> list[SettingOut]:
    return [_item(model, name, (*before, name)) for name in names]


def _item(model: BaseModel, name: str, path: tuple[str, ...]) -> SettingOut:
    field = type(model).model_fields[name]
    value, default = getattr(model, name), field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        default = None
    secret = "SecretStr" in repr(field.annotation) or bool(secrets_of([value, default]))
    return SettingOut(
        ".".join(path),
        PREFIX + "__".join(path).upper(),
        field.description or "",
        None if secret else _shown(value),
        None if secret else _shown(default),
        value != default,
        secret,
    )


def _shown(value: Any) -> Any:
    """A value as JSON has it, without the user and password of an address."""
    if isinstance(value, (str, Path)):
        return _USER_OF_URL.sub("//…@", str(value))
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, dict):
        return {str(key): _shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_shown(each) for each in value]
    assert not isinstance(value, SecretStr)
    return value
