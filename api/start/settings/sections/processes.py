"""Sections on the processes of the control plane, and on what they share."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from api.start.settings.sections.base import (
    Names,
    Port,
    PortRange,
    Section,
    parse_json,
)


class EtcdSettings(Section):
    """Access to etcd, which stores the state of the control plane."""

    endpoints: Names = Field(
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


class RaySettings(Section):
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
    configurator_cpus: float = Field(
        default=1.0,
        ge=0,
        description="CPUs that a configurator reserves on a cluster; none on the service's own Ray",
    )
    southbound_cpus: float = Field(default=1.0, ge=0, description="the same, a southbound process")
    node_host: str | None = Field(
        default=None,
        description="address at which workers listen; default: loopback, or the node's",
    )
    namespace: str = Field(
        default="dzflow",
        min_length=1,
        max_length=200,
        description="Ray's namespace of the workers; services on one cluster need their own",
    )


class StreamSettings(Section):
    """Streams between processes: where they are accepted, and TLS, needed across a network."""

    host: str = Field(
        default="127.0.0.1",
        description="address at which `--only southbound` listens; for workers: `ray.node_host`",
    )
    advertise: str | None = Field(
        default=None, description="name or address at which others reach it; default: `host`"
    )
    ports: PortRange | None = Field(
        default=None,
        description="FIRST-LAST: each listener on a machine takes a free one; default: any port",
    )
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


class SliceSettings(Section):
    """How a configurator gathers the requests of a partition into slices."""

    limit: int = Field(default=500, ge=1, description="the most requests that are decided together")
    gather_ms: float = Field(
        default=20.0,
        ge=0,
        description="the longest that requests wait for others, while slices are in progress",
    )
    at_once: int = Field(
        default=0,
        ge=0,
        description="partitions that a configurator works on at a time, oldest request first; "
        "0: all, 1: as in the thesis",
    )


class SharedSettings(Section):
    """How configurators share partitions in mode `sea`."""

    patience_ms: float = Field(
        default=100.0, ge=0, description="the least that tasks wait before their lock is passed on"
    )


class TimeSettings(Section):
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
    drain: float = Field(
        default=12.0,
        ge=0,
        description="a process that ends has this long for its requests, or to hand over switches",
    )
    drain_delay: float = Field(
        default=0.0, ge=0, description="before that, it says for so long that it is not ready"
    )


class ProbeSettings(Section):
    """Where a process that is started alone answers `/healthz` and `/readyz`; the API does so."""

    host: str = Field(default="127.0.0.1", description="address at which it listens")
    port: Port | None = Field(default=None, description="port at which it listens; default: none")


class TelemetrySettings(Section):
    """Traces for an OpenTelemetry collector; see [traces](../how-to/observe.md#trace-requests)."""

    enabled: bool = Field(default=False, description="trace requests (needs the extra `otel`)")
    endpoint: str = Field(
        default="http://localhost:4318/v1/traces",
        description="where the collector takes traces by OTLP over HTTP",
    )
    share: float = Field(
        default=0.01, ge=0, le=1, description="of requests whose callers have not decided"
    )
    headers: Annotated[dict[str, SecretStr], BeforeValidator(parse_json)] = Field(
        default={}, description="headers that the collector asks for, such as a token"
    )
    ca: Path | None = Field(
        default=None,
        description="CA certificates for the collector's; default: the system's",
    )

    @field_validator("endpoint")
    @classmethod
    def _usable(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("this is not a URL such as https://collector.example:4318/v1/traces")
        if parts.username or parts.password:
            raise ValueError("a URL is shown in logs: put user name and password into headers")
        return endpoint


class LogSettings(Section):
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
