"""A southbound process as the settings describe it."""

from api.start.parts.common import access, environment, stream_token
from api.start.settings.settings import Settings
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.store.server.server import free_ports
from configurators.tracing import Tracer
from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions
from sdn.openflow.options import Admission

OPENFLOW_PORT = 6653


def openflow_address(settings: Settings, number: int) -> str:
    """Where a southbound process accepts switches; empty: at any port of its node."""
    openflow = settings.openflow
    if openflow.ports:
        return f"{openflow.host}:{openflow.ports[number - 1]}"
    if settings.data_plane == "external":
        return f"{openflow.host}:{OPENFLOW_PORT + number - 1}"
    if settings.data_plane == "ovs":
        # Switches of the lab look for a worker that is restarted at the same place.
        return f"127.0.0.1:{free_ports(1)[0]}"
    return ""


def southbound_options(settings: Settings, node: str, alone: bool = False) -> SouthboundOptions:
    """The options of a southbound process, which Ray has placed or which was started `alone`."""
    tls, onos, switches = settings.openflow, settings.onos, settings.switches
    return SouthboundOptions(
        node=node,
        advertise=(settings.streams.advertise or "") if alone else "",
        advertise_openflow=(settings.openflow.advertise or "") if alone else "",
        drain=settings.times.drain if alone else 0.0,
        ttl=settings.times.southbound_lease,
        role=tls.role,
        timeout=switches.timeout,
        echo_every=switches.echo_every,
        audit_every=switches.audit_every,
        window=switches.window,
        queue=switches.queue,
        rate=switches.rate or None,
        discover=settings.discovers,
        learn_hosts=settings.discovery.hosts != "declared",
        cert=str(tls.cert) if tls.cert else None,
        key=str(tls.key) if tls.key else None,
        ca=str(tls.ca) if tls.ca else None,
        admission=Admission(
            named_certificates=tls.named_certificates,
            connections=tls.connections,
            address_connections=tls.address_connections,
            unfinished=tls.unfinished,
            handshake_timeout=tls.handshake_timeout,
            displace_after=tls.displace_after,
            failure_rate=tls.failure_rate,
            reconnect_every=tls.reconnect_every,
            message_rate=tls.message_rate,
        ),
        onos=OnosAccess(
            onos.url,
            onos.user,
            onos.password.get_secret_value(),
            verify=str(onos.ca) if onos.ca else True,
        ),
        onos_options=OnosOptions(queue=switches.queue, audit_every=switches.audit_every),
    )


def make_southbound(
    settings: Settings,
    id: str,
    node: str,
    listen: str,
    openflow: str,
    tracer: Tracer | None = None,
    alone: bool = False,
) -> SouthboundProcess:
    """A southbound process that accepts streams at `listen`, and switches at `openflow`.

    If it was started `alone`, it hands its switches over before it ends.
    """
    return SouthboundProcess(
        access(settings),
        stream_token(settings),
        id,
        listen,
        openflow,
        "onos" if settings.data_plane == "onos" else "openflow",
        southbound_options(settings, node, alone),
        environment=environment(settings, tracer),
    )
