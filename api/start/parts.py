"""Makes the parts of the service, and their options, from the settings."""

from msgspec.structs import replace

from api.http.app_settings import ApiSettings, Token
from api.start.settings.settings import Settings
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.store.etcd.client import Access
from dispatcher.changes.damping import Patience
from dispatcher.options import DispatcherOptions
from sdn.emulator import PRESETS, SwitchModel
from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions

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


def api_settings(settings: Settings) -> ApiSettings:
    """The settings of the REST application."""
    limits = settings.limits
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
    )


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
    return ConfiguratorProcess(access(settings), stream_token(settings), id, listen, options)


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
    )
