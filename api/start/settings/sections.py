"""The sections of the settings: `[etcd]`, `[limits]` and so on in a file."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from dzflow.connections import networks


def _parse_list(value: Any) -> Any:
    """A list in an environment variable is written with commas, or as JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _parse_json(value)
    return [part.strip() for part in value.split(",") if part.strip()]


def _parse_json(value: Any) -> Any:
    """A table in an environment variable is written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # The message does not repeat the value: it may be a secret.
        raise ValueError("this is not JSON") from None


# Names, not regular expressions: `*` stands alone, for any name.
_NAME = re.compile(r"\*|[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
Names = Annotated[tuple[str, ...], BeforeValidator(_parse_list)]

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


Port = Annotated[int, Field(ge=0, le=65535)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class EtcdSettings(_Section):
    """Access to etcd, which stores the state of the control plane."""

    endpoints: Annotated[tuple[str, ...], BeforeValidator(_parse_list)] = Field(
        default=(),
        description="host:port of each member, or unix:PATH; default: the service starts its own",
    )
    prefix: str = Field(default="dzflow/", description="beginning of all keys")
    user: str | None = Field(default=None, description="user name, if etcd requires one")
    password: SecretStr | None = Field(default=None, description="password of the user")
    ca: Path | None = Field(
        default=None, description="CA certificates that signed those of the members"
    )
    cert: Path | None = Field(default=None, description="client certificate, if etcd requires one")
    key: Path | None = Field(default=None, description="key of the client certificate")
    plain: bool = Field(default=False, description="connect beyond loopback without TLS")
    timeout: float = Field(default=10.0, gt=0, description="seconds until a request is given up")
    quota: int | None = Field(
        default=None,
        ge=16 << 20,
        description="bytes of the database; default: 4 GiB, or 2 GiB for an etcd that is given",
    )
    history: float = Field(
        default=60.0, ge=10, description="seconds of history that are kept for slow readers"
    )

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return bool(self.ca or self.cert)

    @model_validator(mode="after")
    def _both(self) -> "EtcdSettings":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together")
        return self


class RaySettings(_Section):
    """Access to Ray, which places and restarts the workers."""

    address: str | None = Field(
        default=None,
        description="host:port of a Ray cluster; default: the service starts its own Ray",
    )
    token_path: Path | None = Field(
        default=None,
        description="file with the cluster's token; its own Ray gets one in the data folder",
    )
    allow_anonymous: bool = Field(
        default=False, description="join a cluster without a token beyond loopback, too"
    )
    node_host: str | None = Field(
        default=None,
        description="address at which workers listen; default: loopback, or the node's",
    )


class TokenSettings(_Section):
    """Tokens of callers. Without any, every caller is let in, on loopback only."""

    operator: Annotated[tuple[SecretStr, ...], BeforeValidator(_parse_list)] = Field(
        default=(), description="tokens that may act for every host"
    )
    hosts: Annotated[dict[str, SecretStr], BeforeValidator(_parse_json)] = Field(
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


class TlsSettings(_Section):
    """HTTPS, if a certificate is given."""

    cert: Path | None = Field(default=None, description="certificate (chain) of the API")
    key: Path | None = Field(default=None, description="key of the certificate")

    @model_validator(mode="after")
    def _both(self) -> "TlsSettings":
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together")
        return self


class HttpSettings(_Section):
    """Who may connect to the API, and how long a connection may take; per API process."""

    names: Annotated[tuple[str, ...], BeforeValidator(_parse_list)] = Field(
        default=(),
        description="names of the API beside localhost; needed without tokens; `*`: any",
    )
    origins: Annotated[tuple[str, ...], BeforeValidator(_parse_list)] = Field(
        default=(),
        description="web origins beside its own whose pages may call it: `https://ops.example`",
    )
    proxies: Annotated[tuple[str, ...], BeforeValidator(_parse_list)] = Field(
        default=(),
        description="addresses and networks of reverse proxies: trusted, not limited per address",
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


class StreamSettings(_Section):
    """TLS for the streams between processes; needed where they cross a network."""

    cert: Path | None = Field(
        default=None, description="certificate of this machine; its processes then use TLS"
    )
    key: Path | None = Field(default=None, description="key of the certificate")
    ca: Path | None = Field(
        default=None, description="CA certificates that signed those of all machines"
    )

    @model_validator(mode="after")
    def _all(self) -> "StreamSettings":
        if len({self.cert is None, self.key is None, self.ca is None}) > 1:
            raise ValueError("cert, key and ca belong together: TLS is asked of both sides")
        return self


class LimitSettings(_Section):
    """Limits of the API: requests beyond them are refused."""

    rate: float = Field(default=0.0, ge=0, description="requests per second; 0: no limit")
    host_rate: float = Field(
        default=0.0, ge=0, description="requests per second of one host; 0: no limit"
    )
    window: int = Field(default=4_000, ge=1, description="requests in progress, per API process")
    host_window: int = Field(
        default=64, ge=1, description="of these, requests of one host: fewer is fairer"
    )
    queue: int = Field(default=20_000, ge=1, description="requests that wait for the window")
    host_queue: int = Field(default=5_000, ge=1, description="of these, requests of one host")
    calls: int = Field(default=2_000, ge=1, description="HTTP requests at once, per API process")
    streams: int = Field(
        default=4_000,
        ge=1,
        description="readers of /stream, per API process; see also `http.address_connections`",
    )
    host_streams: int = Field(
        default=200, ge=1, description="of these, readers with the token of one host"
    )
    body: int = Field(default=8 << 20, ge=1024, description="bytes of a request's body")
    work: float = Field(
        default=500.0,
        ge=0,
        description="ms of processor time per second for filters, per API process; 0: no limit",
    )
    host_work: float = Field(
        default=200.0, ge=0, description="of these, for filters of one host; 0: no limit"
    )
    filter: int = Field(default=64 << 10, ge=1024, description="bytes of a filter (as MessagePack)")
    record: int = Field(
        default=256 << 10,
        ge=4096,
        le=1 << 20,
        description="bytes of a subscription or advertisement as it is stored",
    )
    host_records: int = Field(
        default=500_000, ge=0, description="subscriptions, advertisements of a host; 0: no limit"
    )
    host_bytes: int = Field(
        default=256 << 20, ge=0, description="bytes that they have together; 0: no limit"
    )
    space_records: int = Field(
        default=2_000_000, ge=0, description="the same in a space; 0: no limit"
    )
    space_bytes: int = Field(
        default=1 << 30, ge=0, description="bytes that they have together; 0: no limit"
    )
    page: int = Field(
        default=4 << 20, ge=1024, description="bytes of a page of a list, if it has several items"
    )
    traces: int = Field(
        default=2 << 30, ge=1 << 20, description="bytes of all traces; the oldest are deleted"
    )
    wait: float = Field(
        default=10.0, gt=0, description="seconds that a request waits for switches by default"
    )


class KeepSettings(_Section):
    """What is kept for a while, and how much of it; see [what is kept](../how-to/storage.md)."""

    finished_s: float = Field(
        default=600.0, ge=60, description="seconds that removed and failed records are kept"
    )
    finished_count: int = Field(
        default=100_000, ge=0, description="the most of them, but all of the last 30 seconds"
    )
    finished_bytes: int = Field(default=128 << 20, ge=0, description="the most bytes of them")
    key_s: float = Field(
        default=86_400.0, ge=600, description="seconds that idempotency keys are honoured"
    )
    key_count: int = Field(
        default=500_000, ge=0, description="the most of them, but all of the last ten minutes"
    )
    key_bytes: int = Field(default=256 << 20, ge=0, description="the most bytes of them")
    answers: int = Field(
        default=10_000,
        ge=1,
        description="answers to keyed requests that leave no record, per API process",
    )
    series: int = Field(
        default=10_000, ge=1, description="metrics reported by applications, per API process"
    )


class PermissionRule(_Section):
    """What some hosts may do in some spaces."""

    hosts: str = Field(min_length=1, max_length=64)
    spaces: str = Field(min_length=1, max_length=64)
    subscribe: bool | str | dict[str, Any] = False
    advertise: bool | str | dict[str, Any] = False


class PermissionSettings(_Section):
    """What callers with a host's token may ask for. Without any rule, everything."""

    rules: Annotated[tuple[PermissionRule, ...], BeforeValidator(_parse_json)] = Field(
        default=(),
        description="tables with hosts, spaces (patterns), subscribe, advertise (true or a filter)",
    )


class OpenFlowSettings(_Section):
    """Where switches connect, and who may; the limits are those of each southbound process."""

    host: str = Field(
        default="127.0.0.1", description="address at which southbound processes listen"
    )
    ports: Annotated[tuple[Port, ...], BeforeValidator(_parse_list)] = Field(
        default=(),
        description="one per southbound process; default: free ports, or 6653 and on (external)",
    )
    cert: Path | None = Field(
        default=None, description="certificate of the service; switches then connect with TLS"
    )
    key: Path | None = Field(default=None, description="key of the certificate")
    ca: Path | None = Field(
        default=None, description="CA certificates that signed those of the switches"
    )
    allow_plain: bool = Field(
        default=False, description="let switches connect without TLS beyond loopback, too"
    )
    named_certificates: bool = Field(
        default=True, description="a switch's certificate must name its datapath id (TLS)"
    )
    connections: int = Field(default=1_024, ge=1, description="connections at once")
    address_connections: int = Field(
        default=256, ge=1, description="of these, connections from one address"
    )
    unfinished: int = Field(
        default=256, ge=1, description="of these, unfinished handshakes; the oldest goes first"
    )
    handshake_timeout: float = Field(
        default=10.0, gt=0, description="seconds for the handshake of TLS, and of OpenFlow"
    )
    displace_after: float = Field(
        default=5.0, gt=0, description="seconds in which a connected switch has to answer an echo"
    )
    failure_rate: float = Field(
        default=10.0, gt=0, description="failed connections per second from one address"
    )
    reconnect_every: float = Field(
        default=5.0, gt=0, description="seconds between set-ups of a switch that reconnects often"
    )
    message_rate: float = Field(
        default=5_000.0, gt=0, description="messages per second that a switch sends unasked"
    )

    @model_validator(mode="after")
    def _all(self) -> "OpenFlowSettings":
        if len({self.cert is None, self.key is None, self.ca is None}) > 1:
            raise ValueError("cert, key and ca belong together: TLS is asked of both sides")
        return self


class SwitchSettings(_Section):
    """How a southbound process treats each switch; with ONOS, `queue` and `audit_every` count."""

    rate: float = Field(
        default=0.0,
        ge=0,
        description="flow-mods per second (hardware switches often need it); 0: no limit",
    )
    window: int = Field(
        default=2_000, ge=1, description="flow operations that are sent, but not acknowledged yet"
    )
    queue: int = Field(
        default=1_000, ge=1, description="batches that wait for the window; more are refused"
    )
    timeout: float = Field(
        default=10.0, gt=0, description="seconds until a switch that does not answer is given up"
    )
    echo_every: float = Field(
        default=15.0, gt=0, description="seconds between echo requests on an idle connection"
    )
    audit_every: float = Field(
        default=300.0, gt=0, description="seconds between audits of a switch's tables"
    )


class OnosSettings(_Section):
    """Access to ONOS, for the data plane `onos`."""

    url: str = Field(
        default="http://127.0.0.1:8181", description="address, with or without /onos/v1"
    )
    user: str = Field(default="onos", description="user name")
    password: SecretStr = Field(default=SecretStr("rocks"), description="password of the user")
    ca: Path | None = Field(
        default=None, description="CA certificates that signed that of ONOS; default: the system's"
    )


class EmulatedSettings(_Section):
    """Emulated switches."""

    model: Literal["software", "hardware"] = Field(
        default="software", description="fast with large tables, or slow with small ones"
    )
    switch_delay_ms: float = Field(default=0.0, ge=0, description="delay of each barrier reply")


class SliceSettings(_Section):
    """How a configurator gathers the requests of a partition into slices."""

    limit: int = Field(default=500, ge=1, description="the most requests that are decided together")
    gather_ms: float = Field(
        default=5.0, ge=0, description="wait for more requests; the first waits at most 4 times it"
    )


class SharedSettings(_Section):
    """How configurators share partitions in mode `sea`."""

    at_once: int = Field(
        default=4, ge=1, description="partitions that a configurator works on at the same time"
    )
    patience_ms: float = Field(
        default=100.0, ge=0, description="time before a configurator waits for another's lock"
    )


class TimeSettings(_Section):
    """Timeouts in seconds; see [failures](../concepts/failures.md)."""

    configurator_lease: int = Field(
        default=5, ge=2, description="without a sign of life, a configurator counts as dead"
    )
    southbound_lease: int = Field(default=10, ge=2, description="the same for a southbound process")
    dispatcher_lease: int = Field(default=10, ge=2, description="the same for an API process")
    take_over_after: float = Field(
        default=2.0, ge=0, description="others take over a dead configurator's partitions (sna)"
    )
    take_over_first: float = Field(
        default=10.0, ge=0, description="the same if it was dead when the others started"
    )
    switch_lost_after: float = Field(
        default=3.0, gt=0, description="a switch that has lost its connection leaves the trees"
    )
    switch_absent_after: float = Field(
        default=30.0, gt=0, description="the same if it never connected, or if most are lost"
    )
    back_after: float = Field(
        default=2.0, ge=0, description="a switch or link that is back is used again; doubles"
    )
    back_after_longest: float = Field(
        default=600.0, gt=0, description="the most that `back_after` doubles to"
    )
    grace: float = Field(
        default=5.0, ge=0, description="old trees and index versions stay after publishers know"
    )


class LogSettings(_Section):
    """Logs."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged"
    )
    format: Literal["json", "console"] = Field(
        default="json", description="for machines, or for people"
    )
    to: Literal["files", "stderr"] = Field(
        default="files", description="`logs/` in the data folder, or stderr"
    )
    size: int = Field(
        default=16 << 20, ge=64 << 10, description="bytes of a log file, of etcd's and Ray's, too"
    )
    files: int = Field(default=3, ge=1, description="older files that are kept of each")
