"""The settings of the service. Where they come from: `api/start/settings_sources.py`.

Secrets are never shown: not in the representation of settings, not in errors.
"""

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from dzflow.errors import BadInput

PREFIX = "DZFLOW_"
DEFAULT_TOPOLOGY = "fat-tree:10"


def _listed(value: Any) -> Any:
    """A list in a variable is written with commas, or as JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _parsed(value)
    return [part.strip() for part in value.split(",") if part.strip()]


def _parsed(value: Any) -> Any:
    """A table in a variable is written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # What was given is not repeated: it may be a secret.
        raise ValueError("this is not JSON") from None


Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=256)]


class BadSettings(BadInput):
    """Settings that cannot be; the message names the setting."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class EtcdSettings(_Group):
    """Where the truth is kept."""

    endpoints: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(),
        description="host:port of each member of a cluster; without any, an own etcd is started",
    )
    prefix: str = Field(default="dzflow/", description="with which all keys begin")
    user: str | None = Field(default=None, description="if the cluster asks who one is")
    password: SecretStr | None = Field(default=None, description="of the user")
    ca: Path | None = Field(
        default=None, description="certificates that the members are trusted by"
    )
    cert: Path | None = Field(
        default=None, description="own certificate, for a cluster that asks for one"
    )
    key: Path | None = Field(default=None, description="key of the own certificate")
    timeout: float = Field(default=10.0, gt=0, description="seconds until a call is given up")

    @model_validator(mode="after")
    def _both(self) -> "EtcdSettings":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together")
        return self


class RaySettings(_Group):
    """What places and supervises the workers."""

    address: str | None = Field(
        default=None,
        description="host:port of a Ray cluster to join; without it, an own Ray is started",
    )
    token_path: Path | None = Field(
        default=None,
        description="file with the cluster's token; the own Ray gets one in the data folder",
    )
    node_host: str | None = Field(
        default=None,
        description="address at which workers listen; default: loopback, or their node's",
    )


class TokenSettings(_Group):
    """Who may call. Without any token everybody may, which is refused beyond loopback."""

    operator: Annotated[tuple[SecretStr, ...], BeforeValidator(_listed)] = Field(
        default=(), description="tokens that may act for every host"
    )
    hosts: Annotated[dict[str, SecretStr], BeforeValidator(_parsed)] = Field(
        default={}, description="host to the token that may act for it"
    )

    @model_validator(mode="after")
    def _usable(self) -> "TokenSettings":
        secrets = [each.get_secret_value() for each in (*self.operator, *self.hosts.values())]
        if any(not secret or secret != secret.strip() for secret in secrets):
            raise ValueError("a token is empty, or has blanks around it")
        if len(set(secrets)) < len(secrets):
            raise ValueError("two callers have the same token; give each its own")
        return self

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return bool(self.operator or self.hosts)


class TlsSettings(_Group):
    """HTTPS, when a certificate is given."""

    cert: Path | None = Field(default=None, description="certificate (chain) of the API")
    key: Path | None = Field(default=None, description="its key")

    @model_validator(mode="after")
    def _both(self) -> "TlsSettings":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together")
        return self


class LimitSettings(_Group):
    """What is refused before memory grows or others suffer."""

    rate: float = Field(default=0.0, ge=0, description="requests a second overall; 0: no limit")
    host_rate: float = Field(default=0.0, ge=0, description="the same for each host")
    window: int = Field(
        default=4_000, ge=1, description="requests under way to the switches, of one API process"
    )
    host_window: int = Field(
        default=64, ge=1, description="of these, requests of one host: the fewer, the fairer"
    )
    queue: int = Field(default=20_000, ge=1, description="requests that wait for the window")
    host_queue: int = Field(default=5_000, ge=1, description="of these, requests of one host")
    calls: int = Field(default=2_000, ge=1, description="calls answered at once by an API process")
    streams: int = Field(default=4_000, ge=1, description="readers of /stream of one API process")
    host_streams: int = Field(
        default=200, ge=1, description="of these, readers with the token of one host"
    )
    body: int = Field(default=8 << 20, ge=1024, description="bytes of a body")
    traces: int = Field(
        default=2 << 30, ge=1 << 20, description="bytes of all traces on the disk; the oldest go"
    )
    wait: float = Field(
        default=10.0, gt=0, description="seconds that a call waits for the switches by default"
    )


class OpenFlowSettings(_Group):
    """Where switches connect."""

    host: str = Field(
        default="127.0.0.1", description="address at which southbound processes listen"
    )
    ports: Annotated[tuple[Port, ...], BeforeValidator(_listed)] = Field(
        default=(),
        description="one per southbound process; default: free ones, external: 6653 and on",
    )
    cert: Path | None = Field(
        default=None, description="own certificate; switches then connect with TLS"
    )
    key: Path | None = Field(default=None, description="its key")
    ca: Path | None = Field(default=None, description="certificates that switches are trusted by")

    @model_validator(mode="after")
    def _all(self) -> "OpenFlowSettings":
        if len({self.cert is None, self.key is None, self.ca is None}) > 1:
            raise ValueError("cert, key and ca belong together: TLS is asked of both sides")
        return self


class OnosSettings(_Group):
    """Access to ONOS, for the data plane `onos`."""

    url: str = Field(
        default="http://127.0.0.1:8181/onos/v1", description="root of its REST interface"
    )
    user: str = Field(default="onos", description="who to be")
    password: SecretStr = Field(default=SecretStr("rocks"), description="of the user")
    ca: Path | None = Field(
        default=None, description="certificates that it is trusted by; default: the system's"
    )


class EmulatedSettings(_Group):
    """What emulated switches are like."""

    model: Literal["software", "hardware"] = Field(
        default="software", description="fast and roomy, or as slow and small as hardware"
    )
    switch_delay_ms: float = Field(default=0.0, ge=0, description="how late barriers are answered")


class SliceSettings(_Group):
    """How a configurator gathers the requests of a partition."""

    limit: int = Field(default=500, ge=1, description="requests decided together at most")
    gather_ms: float = Field(
        default=5.0, ge=0, description="a task waits for more; the first at most 4 times as long"
    )


class SharedSettings(_Group):
    """How configurators share partitions in mode `sea`."""

    at_once: int = Field(
        default=4, ge=1, description="partitions that a configurator works on at the same time"
    )
    patience_ms: float = Field(
        default=100.0, ge=0, description="before one waits for a lock that another has"
    )


class TimeSettings(_Group):
    """Seconds until something is given up, or used again; see docs/concepts/failures.md."""

    configurator_lease: int = Field(
        default=5, ge=2, description="a configurator without a sign of life counts as dead"
    )
    southbound_lease: int = Field(default=10, ge=2, description="the same for a southbound process")
    dispatcher_lease: int = Field(default=10, ge=2, description="the same for an API process")
    take_over_after: float = Field(
        default=2.0, ge=0, description="a dead configurator's partitions go to others (mode sna)"
    )
    take_over_first: float = Field(
        default=10.0, ge=0, description="the same if it was dead when the others started"
    )
    switch_lost_after: float = Field(
        default=3.0, gt=0, description="a switch that has lost its connection leaves the trees"
    )
    switch_absent_after: float = Field(
        default=30.0, gt=0, description="the same if it was never seen, or most are away"
    )
    back_after: float = Field(
        default=2.0, ge=0, description="a switch or link that is back is used again; doubles"
    )
    back_after_longest: float = Field(
        default=600.0, gt=0, description="the same for one that was lost again and again"
    )
    grace: float = Field(
        default=5.0, ge=0, description="old trees and index versions go, once publishers know"
    )


class LogSettings(_Group):
    """What is written down about the running."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="from which on"
    )
    format: Literal["json", "console"] = Field(
        default="json", description="for machines, or for people"
    )
    to: Literal["files", "stderr"] = Field(
        default="files", description="logs/ in the data folder, or stderr"
    )


class Settings(BaseSettings):
    """All settings. This class itself reads nothing; see `settings_sources`."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, env_prefix=PREFIX
    )

    data_plane: Literal["emulated", "ovs", "external", "onos"] = Field(
        default="emulated",
        description="emulated switches, an Open vSwitch lab (root), switches that connect, or ONOS",
    )
    topology: str = Field(
        default=DEFAULT_TOPOLOGY,
        description="line:N, ring:N, tree:D,F, fat-tree:10 or 102, or a file",
    )
    configurators: Count = Field(default=2, description="workers that decide")
    southbound: Count = Field(
        default=1, description="workers that hold the connections to switches"
    )
    dispatchers: Count = Field(default=1, description="API processes, all on the same port")
    mode: Literal["sna", "sea"] = Field(
        default="sna", description="shared nothing, or shared everything"
    )
    plan: Literal["legs", "lpm"] = Field(
        default="legs", description="how filters become table entries"
    )
    trees: int = Field(
        default=1, ge=1, le=16, description="spanning trees that events are spread over"
    )
    ordering: Literal["fifo", "ordered", "net"] = Field(
        default="net", description="how a slice is decided"
    )
    partitions: int | None = Field(
        default=None, ge=1, le=4096, description="of a new space; default: 4 per configurator"
    )
    listen: str = Field(default="127.0.0.1", description="address at which the API listens")
    port: Port = Field(default=8080, description="port at which the API listens; 0: a free one")
    data_dir: Path = Field(default=Path(".dzflow"), description="folder for all that is kept")
    allow_anonymous: bool = Field(
        default=False, description="listen beyond loopback without tokens (--insecure)"
    )
    stream_token: SecretStr | None = Field(
        default=None,
        description="shared by all processes; default: made once, kept in the data folder",
    )
    etcd: EtcdSettings = EtcdSettings()
    ray: RaySettings = RaySettings()
    tokens: TokenSettings = TokenSettings()
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    slices: SliceSettings = SliceSettings()
    sea: SharedSettings = SharedSettings()
    times: TimeSettings = TimeSettings()
    openflow: OpenFlowSettings = OpenFlowSettings()
    onos: OnosSettings = OnosSettings()
    emulated: EmulatedSettings = EmulatedSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is given in so many words."""
        return (init_settings,)

    @model_validator(mode="after")
    def _fit(self) -> "Settings":
        if self.data_plane == "onos" and self.plan != "lpm":
            raise ValueError("plan: ONOS can match prefixes only; choose lpm")
        if self.openflow.ports and len(self.openflow.ports) != self.southbound:
            raise ValueError(
                f"openflow.ports: there are {len(self.openflow.ports)} for {self.southbound}"
                " southbound processes; give one for each"
            )
        if not (self.tokens.given or self.allow_anonymous or is_loopback(self.listen)):
            raise ValueError(
                f"listen: to be reached at {self.listen}, set tokens.operator or tokens.hosts"
                ", or allow everybody in with --insecure (allow_anonymous)"
            )
        return self

    @property
    def partition_count(self) -> int:
        """Partitions of a new space."""
        return self.partitions or 4 * self.configurators

    def for_workers(self) -> "Settings":
        """What workers need of it: not who may call the API, nor its key."""
        without = {"tokens": TokenSettings(), "tls": TlsSettings(), "listen": "127.0.0.1"}
        return self.model_copy(update=without)

    def revealed(self) -> dict[str, Any]:
        """Everything, secrets too, as JSON has it: for the processes that are started with it."""
        revealed: dict[str, Any] = _reveal(self.model_dump())
        return revealed


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reveal(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {key: _reveal(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_reveal(each) for each in value]
    return str(value) if isinstance(value, Path) else value
