"""Sections on switches: how they connect, and how they are treated."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from api.start.settings.sections.base import Port, Section, parse_list


class OpenFlowSettings(Section):
    """Where switches connect, and who may; the limits are those of each southbound process."""

    host: str = Field(
        default="127.0.0.1", description="address at which southbound processes listen"
    )
    ports: Annotated[tuple[Port, ...], BeforeValidator(parse_list)] = Field(
        default=(),
        description="one for each southbound process; default: free ones, or 6653, … (external)",
    )
    advertise: str | None = Field(
        default=None,
        description="name or address at which switches reach `--only southbound`; default: `host`",
    )
    cert: Path | None = Field(
        default=None, description="certificate of the service; switches then connect with TLS"
    )
    key: Path | None = Field(default=None, description="key of the certificate")
    ca: Path | None = Field(
        default=None, description="CA certificates that signed those of the switches"
    )
    role: Literal["master", "equal"] = Field(
        default="master",
        description="`equal`: switches obey other controllers, too; with one southbound process",
    )
    other_traffic: Literal["leave", "normal"] = Field(
        default="leave",
        description="what is not an event: left to others, or forwarded by each switch itself",
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


class SwitchSettings(Section):
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


class DiscoverySettings(Section):
    """What is found out about the network; see [discovery](../concepts/southbound.md#discovery)."""

    links: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="find switches and links: with the data plane `external`, always, or never",
    )
    hosts: Literal["declared", "propose", "accept"] = Field(
        default="declared",
        description="where hosts come from: operators, also proposals to them, or by themselves",
    )
    settled_after: float = Field(
        default=5.0,
        ge=0,
        description="seconds without a new switch or link, before better trees are looked for",
    )
    accept_after: float = Field(
        default=30.0,
        ge=0,
        description="seconds alone at a port until a host is accepted; longer than switches need to"
        " connect",
    )


class OnosSettings(Section):
    """Access to ONOS, for the data plane `onos`."""

    url: str = Field(
        default="http://127.0.0.1:8181", description="address, with or without /onos/v1"
    )
    user: str = Field(default="onos", description="user name")
    password: SecretStr = Field(default=SecretStr("rocks"), description="password of the user")
    ca: Path | None = Field(
        default=None, description="CA certificates that signed that of ONOS; default: the system's"
    )


class EmulatedSettings(Section):
    """Emulated switches."""

    model: Literal["software", "hardware"] = Field(
        default="software", description="fast with large tables, or slow with small ones"
    )
    switch_delay_ms: float = Field(default=0.0, ge=0, description="delay of each barrier reply")
