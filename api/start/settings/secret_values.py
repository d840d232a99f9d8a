"""Finds the secrets in settings."""

from pydantic import BaseModel, SecretStr


def secrets_of(value: object) -> list[str]:
    """All secrets in settings."""
    if isinstance(value, SecretStr):
        return [value.get_secret_value()]
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, dict):
        return [each for part in value.values() for each in secrets_of(part)]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in secrets_of(part)]
    return []
