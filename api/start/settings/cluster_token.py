"""Finds the token of a Ray cluster that is joined."""

from collections.abc import Mapping
from pathlib import Path

from api.start.settings.settings import Settings

_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable


def find_cluster_token(settings: Settings, variables: Mapping[str, str]) -> Path | str | None:
    """The token of a cluster that is joined: its file, or itself; None if there is none.

    It is the one that the settings name, or else the one that Ray itself would use.
    """
    if settings.ray.token_path:
        return settings.ray.token_path
    if variables.get(_TOKEN):
        return variables[_TOKEN]
    if path := variables.get("RAY_AUTH_TOKEN_PATH"):
        return Path(path)
    default = Path.home() / ".ray" / "auth_token"
    return default if default.exists() else None
