"""The settings of the service. Where they come from: `api/start/settings/sources.py`.

Secrets are never shown: not in the representation of settings, not in errors.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from api.start.settings.sections.balancing import BalancingSettings
from api.start.settings.sections.base import Names, Port
from api.start.settings.sections.callers import (
    HttpSettings,
    PermissionSettings,
    TlsSettings,
    TokenSettings,
    check_token,
)
from api.start.settings.sections.jobs import JobSettings
from api.start.settings.sections.limits import KeepSettings, LimitSettings
from api.start.settings.sections.processes import (
    EtcdSettings,
    LogSettings,
    ProbeSettings,
    RaySettings,
    SharedSettings,
    SliceSettings,
    StreamSettings,
    TelemetrySettings,
    TimeSettings,
)
from api.start.settings.sections.switches import (
    DiscoverySettings,
    EmulatedSettings,
    OnosSettings,
    OpenFlowSettings,
    SwitchSettings,
)
from api.start.settings.sections.traces import TraceSettings
from configurators.state.wanted import MAX_WORKERS
from dzflow.errors import BadInput

PREFIX = "DZFLOW_"
DEFAULT_TOPOLOGY = "fat-tree:10"

Count = Annotated[int, Field(ge=1, le=256)]
WorkerCount = Annotated[int, Field(ge=1, le=MAX_WORKERS)]


Part = Literal["api", "network", "workers", "configurator", "southbound"]
"""A process of the service. `workers` is the one that starts the workers."""

_SECRET_SECTIONS: Mapping[Part, frozenset[str]] = {
    "api": frozenset({"stream_token", "tokens", "tls", "telemetry", "traces"}),
    "network": frozenset(),
    "workers": frozenset({"stream_token", "onos", "telemetry"}),
    "configurator": frozenset({"stream_token", "telemetry"}),
    "southbound": frozenset({"stream_token", "onos", "telemetry"}),
}
"""The secrets that each process gets; all get those of etcd."""


class BadSettings(BadInput):
    """Settings that cannot be used; the message names the setting."""


class Settings(BaseSettings):
    """All settings. This class itself reads nothing; see `settings_sources`."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, env_prefix=PREFIX
    )

    data_plane: Literal["emulated", "ovs", "external", "onos"] = Field(
        default="emulated",
        description="emulated switches, an Open vSwitch lab (as root), your switches, or ONOS",
    )
    topology: str = Field(
        default=DEFAULT_TOPOLOGY,
        description="line:N, ring:N, tree:D,F, fat-tree:10 or 102, or a file",
    )
    configurators: WorkerCount = Field(
        default=2, description="workers that decide flow changes; counts when it changes"
    )
    southbound: WorkerCount = Field(
        default=1, description="workers that hold the switch connections; counts when it changes"
    )
    southbound_placed: Literal["ray", "outside"] = Field(
        default="ray",
        description="who starts southbound processes: Ray, or you (`--only southbound`)",
    )
    southbound_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="name of `--only southbound`, the same at each start; default: the host's name",
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
        default=None,
        ge=1,
        le=4096,
        description="partitions of a new space; default: 4 per configurator",
    )
    listen: str = Field(default="127.0.0.1", description="address at which the API listens")
    port: Port = Field(default=8080, description="port at which the API listens; 0: a free port")
    data_dir: Path = Field(default=Path(".dzflow"), description="folder for state, logs and traces")
    allow_anonymous: bool = Field(
        default=False, description="let everybody in beyond loopback, too (`--insecure`)"
    )
    stream_token: SecretStr | None = Field(
        default=None,
        description="secret of all processes; default: made once, kept in the data folder",
    )
    pass_variables: Names = Field(
        default=(),
        description="names of further environment variables that child processes get",
    )
    etcd: EtcdSettings = EtcdSettings()
    ray: RaySettings = RaySettings()
    tokens: TokenSettings = TokenSettings()
    permissions: PermissionSettings = PermissionSettings()
    tls: TlsSettings = TlsSettings()
    http: HttpSettings = HttpSettings()
    streams: StreamSettings = StreamSettings()
    limits: LimitSettings = LimitSettings()
    keep: KeepSettings = KeepSettings()
    slices: SliceSettings = SliceSettings()
    sea: SharedSettings = SharedSettings()
    balancing: BalancingSettings = BalancingSettings()
    times: TimeSettings = TimeSettings()
    probes: ProbeSettings = ProbeSettings()
    openflow: OpenFlowSettings = OpenFlowSettings()
    switches: SwitchSettings = SwitchSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    onos: OnosSettings = OnosSettings()
    emulated: EmulatedSettings = EmulatedSettings()
    traces: TraceSettings = TraceSettings()
    jobs: JobSettings = JobSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only values that are passed to the constructor."""
        return (init_settings,)

    @model_validator(mode="after")
    def _fit(self) -> "Settings":
        if self.data_plane == "onos" and self.plan != "lpm":
            raise ValueError("plan: ONOS can match prefixes only; choose lpm")
        if self.stream_token is not None:
            check_token(self.stream_token, "stream_token")
        by_ray = self.southbound_placed == "ray"
        if by_ray and self.openflow.ports and len(self.openflow.ports) < self.southbound:
            raise ValueError(
                f"openflow.ports: there are {len(self.openflow.ports)} for {self.southbound}"
                " southbound processes; give one for each, and more to start more of them later"
            )
        if self.http.process_ports and len(self.http.process_ports) != self.dispatchers:
            raise ValueError(
                f"http.process_ports: there are {len(self.http.process_ports)} for"
                f" {self.dispatchers} API processes; give one for each"
            )
        if not (self.tokens.given or self.allow_anonymous or is_loopback(self.listen)):
            raise ValueError(
                f"listen: to be reached at {self.listen}, set tokens.operator or tokens.hosts"
                ", or allow everybody in with --insecure (allow_anonymous)"
            )
        self._check_other_traffic()
        self._check_openflow()
        return self

    def _check_other_traffic(self) -> None:
        if self.openflow.other_traffic == "leave":
            return
        if self.data_plane == "emulated":
            raise ValueError(
                "openflow.other_traffic: emulated switches carry events only; leave it out, or"
                " choose another data_plane"
            )
        if self.data_plane == "onos":
            raise ValueError(
                "openflow.other_traffic: ONOS decides about other traffic; leave it out, and"
                " activate its application for forwarding (org.onosproject.fwd)"
            )

    def _check_openflow(self) -> None:
        """Refuse OpenFlow beyond loopback without TLS, unless it is explicitly allowed."""
        openflow = self.openflow
        if openflow.role == "equal" and self.southbound > 1:
            raise ValueError(
                f"openflow.role: with equal, switches do not keep {self.southbound} southbound"
                " processes apart; set southbound to 1, or the role to master"
            )
        if openflow.cert or openflow.allow_plain or self.data_plane == "onos":
            return
        if not is_loopback(openflow.host):
            raise ValueError(
                f"openflow.host: without TLS, everybody who reaches {openflow.host} can pretend to"
                " be a switch; set openflow.cert, openflow.key and openflow.ca, or allow it with"
                " openflow.allow_plain = true in a network that you trust"
            )

    @property
    def discovers(self) -> bool:
        """Whether southbound processes find switches and links."""
        wish = self.discovery.links
        return wish == "on" or (wish == "auto" and self.data_plane == "external")

    def for_part(self, part: Part) -> "Settings":
        """The settings for one process, without the secrets that it does not need."""
        needs = _SECRET_SECTIONS[part]
        without: dict[str, Any] = {
            "tokens": TokenSettings(),
            "tls": TlsSettings(),
            "onos": self.onos.model_copy(update={"password": SecretStr("")}),
            "stream_token": None,
            "telemetry": self.telemetry.model_copy(update={"headers": {}}),
            "traces": TraceSettings(),
        }
        changes = {name: value for name, value in without.items() if name not in needs}
        if "tokens" in changes:
            changes["listen"] = "127.0.0.1"  # elsewhere, tokens are asked for
        return self.model_copy(update=changes)

    def revealed(self) -> dict[str, Any]:
        """All settings as JSON values, with secrets: for the processes of the service."""
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
