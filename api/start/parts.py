"""Makes the parts of the service, and their options, from the settings."""

from functools import partial

from msgspec.structs import replace

from api.http.app_settings import ApiSettings, Token
from api.start.settings.certificates import stream_tls
from api.start.settings.settings import Settings, is_loopback
from configurators.environment import Environment
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.store.etcd.client import Access
from configurators.streams.listener import Listener, connect
from dispatcher.changes.damping import Patience
from dispatcher.knowledge.usage import Quotas
from dispatcher.options import DispatcherOptions
from dispatcher.requests.intake.permissions import Permission
from sdn.emulator import PRESETS, SwitchModel
from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions
from sdn.openflow.options import Admission

OWN_QUOTA = 4 << 30
"""Bytes of the database of the service's own etcd, unless the settings say otherwise."""

OTHER_QUOTA = 2 << 30
"""The same for another etcd: etcd's own default."""


def access(settings: Settings) -> Access:
    """How etcd is reached."""
    etcd = settings.etcd
    return Access(
        tuple(etcd.endpoints),
        prefix=etcd.prefix,
        user=etcd.user,
        password=etcd.password.get_secret_value() if etcd.password else None,
        ca=str(etcd.ca) if etcd.ca else None,
        cert=str(etcd.cert) if etcd.cert else None,
        key=str(etcd.key) if etcd.key else None,
        timeout=etcd.timeout,
    )


def stream_token(settings: Settings) -> bytes:
    """The secret that all processes of the installation share."""
    assert settings.stream_token is not None  # `dzflow up` makes one if none is given
    return settings.stream_token.get_secret_value().encode()


def environment(settings: Settings) -> Environment:
    """The environment of a process: the real one, with streams as the settings say."""
    tls = stream_tls(settings)
    if tls is None:
        return Environment()
    return Environment(listener=partial(Listener, tls=tls), connect=partial(connect, tls=tls))


def api_settings(settings: Settings) -> ApiSettings:
    """The settings of the REST application."""
    limits, http = settings.limits, settings.http
    operators = (Token(each.get_secret_value(), "operator") for each in settings.tokens.operator)
    hosts = (
        Token(each.get_secret_value(), "host", host) for host, each in settings.tokens.hosts.items()
    )
    return ApiSettings(
        tokens=(*operators, *hosts),
        max_body=limits.body,
        max_requests=limits.calls,
        max_streams=limits.streams,
        max_host_streams=limits.host_streams,
        default_wait=limits.wait,
        max_wait=max(limits.wait, 60.0),
        max_kept_answers=settings.keep.answers,
        max_series=settings.keep.series,
        names=_names(settings),
        any_address=not is_loopback(settings.listen),
        origins=http.origins,
        proxies=http.proxies,
        max_connections=http.connections,
        max_address_connections=http.address_connections,
        reserve=http.reserve,
        head_timeout=http.head_timeout,
        body_timeout=http.body_timeout,
        send_timeout=http.send_timeout,
        idle_timeout=http.idle_timeout,
    )


def _names(settings: Settings) -> tuple[str, ...]:
    """The names of the API: those that are given and, if callers need no token, its address."""
    given = settings.http.names
    return given if settings.tokens.given and not given else (settings.listen, *given)


def dispatcher_options(settings: Settings, node: str) -> DispatcherOptions:
    """The options of a dispatcher."""
    limits, times, keep = settings.limits, settings.times, settings.keep
    return DispatcherOptions(
        node=node,
        plan=settings.plan,
        partitions=settings.partition_count,
        mode=settings.mode,
        window=limits.window,
        window_per_host=limits.host_window,
        queue=limits.queue,
        queue_per_host=limits.host_queue,
        rate=limits.rate or None,
        rate_per_host=limits.host_rate or None,
        finished_ttl=keep.finished_s,
        finished_records=keep.finished_count,
        finished_bytes=keep.finished_bytes,
        key_ttl=keep.key_s,
        keys=keep.key_count,
        key_bytes=keep.key_bytes,
        quota=settings.etcd.quota or OTHER_QUOTA,
        history=settings.etcd.history,
        work=limits.work or None,
        work_per_host=limits.host_work or None,
        max_filter=limits.filter,
        max_record=limits.record,
        max_page=limits.page,
        quotas=Quotas(
            limits.host_records or None,
            limits.host_bytes or None,
            limits.space_records or None,
            limits.space_bytes or None,
        ),
        permissions=tuple(
            Permission(rule.hosts, rule.spaces, rule.subscribe, rule.advertise)
            for rule in settings.permissions.rules
        ),
        lease_ttl=times.dispatcher_lease,
        grace=times.grace,
        patience=Patience(
            down_after=times.switch_lost_after,
            absent_after=times.switch_absent_after,
            back_after=times.back_after,
            longest=times.back_after_longest,
        ),
        traces=str(settings.data_dir / "traces"),
        traces_bytes=limits.traces,
    )


def switch_model(settings: Settings) -> SwitchModel:
    """The model of emulated switches."""
    model = PRESETS[settings.emulated.model]
    delay = settings.emulated.switch_delay_ms / 1000
    return replace(model, acknowledge_after=delay) if delay else model


def configurator(settings: Settings, id: str, node: str, listen: str) -> ConfiguratorProcess:
    """A configurator that accepts streams at `listen`."""
    times = settings.times
    options = ConfiguratorOptions(
        ordering=settings.ordering,
        slice_limit=settings.slices.limit,
        gather_ms=settings.slices.gather_ms,
        lease_s=times.configurator_lease,
        take_over_after_s=times.take_over_after,
        take_over_first_s=times.take_over_first,
        node=node,
        mode=settings.mode,
        at_once=settings.sea.at_once,
        patience_s=settings.sea.patience_ms / 1000,
    )
    token, around = stream_token(settings), environment(settings)
    return ConfiguratorProcess(access(settings), token, id, listen, options, around)


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


def southbound(
    settings: Settings, id: str, node: str, listen: str, openflow: str
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
        environment=environment(settings),
    )
