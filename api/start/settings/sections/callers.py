"""Sections on callers of the API: tokens, connections, and what each may ask for."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from api.start.settings.sections.base import Names, Port, Section, parse_json, parse_list
from dzflow.process.connections import networks

# Names, not regular expressions: `*` stands alone, for any name.
_NAME = re.compile(r"\*|[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
MIN_TOKEN = 16  # characters


def check_token(token: SecretStr, name: str) -> None:
    """Refuse (ValueError) a token that can be guessed; its length is all that can be checked."""
    secret = token.get_secret_value()
    if not secret or secret != secret.strip():
        raise ValueError(f"{name}: a token is empty, or has blanks around it")
    if not (secret.isascii() and secret.isprintable()):
        raise ValueError(f"{name}: a token consists of letters, digits and signs of ASCII")
    if len(secret) < MIN_TOKEN:
        raise ValueError(
            f"{name}: a token of fewer than {MIN_TOKEN} characters can be guessed; `dzflow token`"
            " prints a good one"
        )


class TokenSettings(Section):
    """Tokens of callers. Without any, every caller is let in, on loopback only."""

    operator: Annotated[tuple[SecretStr, ...], BeforeValidator(parse_list)] = Field(
        default=(), description="tokens that may act for every host"
    )
    hosts: Annotated[dict[str, SecretStr], BeforeValidator(parse_json)] = Field(
        default={}, description="for each host, the token that may act for it"
    )

    @model_validator(mode="after")
    def _usable(self) -> "TokenSettings":
        secrets = [each.get_secret_value() for each in (*self.operator, *self.hosts.values())]
        for token in self.operator:
            check_token(token, "operator")
        for host, token in self.hosts.items():
            check_token(token, f"hosts.{host}")
        if len(set(secrets)) < len(secrets):
            raise ValueError("two callers have the same token; give each its own")
        return self

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return bool(self.operator or self.hosts)


class TlsSettings(Section):
    """HTTPS, if a certificate is given."""

    cert: Path | None = Field(default=None, description="certificate (chain) of the API")
    key: Path | None = Field(default=None, description="key of the certificate")

    @model_validator(mode="after")
    def _both(self) -> "TlsSettings":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together")
        return self


class HttpSettings(Section):
    """Who may connect to the API, and how long a connection may take; per API process."""

    names: Names = Field(
        default=(),
        description="names of the API beside localhost; needed without tokens; `*`: any",
    )
    origins: Names = Field(
        default=(),
        description="web origins beside its own whose pages may call it: `https://ops.example`",
    )
    proxies: Names = Field(
        default=(),
        description="addresses and networks of reverse proxies: trusted, not limited per address",
    )
    process_ports: Annotated[tuple[Port, ...], BeforeValidator(parse_list)] = Field(
        default=(),
        description="for each API process, a further port that leads to it alone: for Prometheus",
    )
    connections: int = Field(
        default=4_096, ge=1, description="connections at once; the longest idle ones give way"
    )
    address_connections: int = Field(
        default=1_024, ge=1, description="of these, connections of one address (IPv6: one /64)"
    )
    reserve: int = Field(
        default=64, ge=1, description="connections beyond these, for /healthz and /readyz only"
    )
    head_timeout: float = Field(
        default=20.0, gt=0, description="seconds for a TLS handshake, and for a request's headers"
    )
    body_timeout: float = Field(default=30.0, gt=0, description="seconds for a request's body")
    send_timeout: float = Field(
        default=60.0, gt=0, description="seconds until a client has read what waits for it"
    )
    idle_timeout: int = Field(
        default=5, ge=1, description="seconds until a connection without requests is closed"
    )

    @field_validator("names")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name such as dzflow.example, without port")
        return names

    @field_validator("origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is not an origin such as https://ops.example:8443")
        return origins

    @field_validator("proxies")
    @classmethod
    def _proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        networks(proxies)
        return proxies


class PermissionRule(Section):
    """What some hosts may do in some spaces."""

    hosts: str = Field(min_length=1, max_length=64)
    spaces: str = Field(min_length=1, max_length=64)
    subscribe: bool | str | dict[str, Any] = False
    advertise: bool | str | dict[str, Any] = False


class PermissionSettings(Section):
    """What callers with a host's token may ask for. Without any rule, everything."""

    rules: Annotated[tuple[PermissionRule, ...], BeforeValidator(parse_json)] = Field(
        default=(),
        description="tables with hosts, spaces (patterns), subscribe, advertise (true or a filter)",
    )
