"""A southbound process as the settings describe it."""

from api.start.parts.common import access, environment, stream_token
from api.start.settings.settings import Settings
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.tracing import Tracer
from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions
from sdn.openflow.options import Admission


def southbound_options(settings: Settings, node: str) -> SouthboundOptions:
    """The options of a southbound process."""
    tls, onos, switches = settings.openflow, settings.onos, settings.switches
    return SouthboundOptions(
        node=node,
        ttl=settings.times.southbound_lease,
        timeout=switches.timeout,
        echo_every=switches.echo_every,
        audit_every=switches.audit_every,
        window=switches.window,
        queue=switches.queue,
        rate=switches.rate or None,
        discover=settings.discovers,
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
) -> SouthboundProcess:
    """A southbound process that accepts streams at `listen`, and switches at `openflow`."""
    return SouthboundProcess(
        access(settings),
        stream_token(settings),
        id,
        listen,
        openflow,
        "onos" if settings.data_plane == "onos" else "openflow",
        southbound_options(settings, node),
        environment=environment(settings, tracer),
    )
