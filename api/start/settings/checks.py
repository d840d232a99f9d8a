"""Checks of the settings before anything is started."""

import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from api.start.roles import ROLES, Only
from api.start.settings.certificates import stream_tls
from api.start.settings.cluster_token import find_cluster_token
from api.start.settings.sections.switches import OnosSettings
from api.start.settings.settings import BadSettings, Settings, is_loopback
from configurators.store.etcd.endpoints import host_of
from dzflow import expr
from dzflow.errors import BadInput
from dzflow.process.private_files import find_exposure
from sdn.lab import missing_prerequisites
from sdn.network.topologies import topology

_TELEMETRY = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def check_settings(settings: Settings, only: Only | None) -> None:
    """Refuse (BadSettings) settings that cannot work."""
    role = ROLES[only]
    if "topology" in settings.model_fields_set:
        topology(settings.topology)
    if settings.data_plane == "ovs" and _may_circle(settings):
        raise BadSettings(
            "openflow.other_traffic: this network has loops, in which the lab's switches would send"
            " broadcasts in circles; choose a topology without, like tree:2,2 or line:3"
        )
    if only is not None and not settings.etcd.endpoints:
        raise BadSettings("etcd.endpoints: parts that are started apart meet in etcd; name it")
    exposed = _plain_beyond_loopback(settings)
    if exposed and not settings.etcd.plain:
        secret = "the password and the state" if settings.etcd.password else "the state"
        raise BadSettings(
            f"etcd.ca: {secret} would travel to {exposed[0]} unencrypted, and everybody in between"
            " could change the state; set etcd.ca, or etcd.plain = true if you trust the network"
        )
    if only is not None and settings.stream_token is None:
        raise BadSettings("stream_token: parts that are started apart must share one; set it")
    stream_tls(settings)  # for an error before anything is started
    _check_role(settings, only)
    if role.workers and not _ray_is_safe(settings):
        raise BadSettings(
            f"ray.token_path: who reaches the Ray cluster at {settings.ray.address} can run"
            " programs on it and read the secrets of this service; give the cluster a token"
            " (RAY_AUTH_MODE=token) and name its file here, or set ray.allow_anonymous"
        )
    if _emulated_elsewhere(settings) and not settings.openflow.allow_plain:
        raise BadSettings(
            "openflow.allow_plain: emulated switches connect to the nodes of Ray beyond loopback,"
            " without TLS; allow it with openflow.allow_plain = true in a network that you trust"
        )
    _check_learning(settings)
    _check_permissions(settings)
    _check_traces(settings)
    if settings.jobs.every and role.api and find_spec("pyspark") is None:
        raise BadSettings(
            "jobs.every: PySpark is missing; run `make spark`, or"
            " `pip install 'dzflow-control[spark]'`"
        )
    if settings.telemetry.enabled and not _has_telemetry():
        raise BadSettings(
            "telemetry.enabled: the packages of OpenTelemetry are not installed; run"
            " `pip install 'dzflow-control[otel]'`, or in a checkout"
            " `.venv/bin/pip install --require-hashes -r requirements/otel.txt`"
        )
    if settings.data_plane == "ovs":
        missing = missing_prerequisites()
        if missing:
            raise BadSettings(f"data_plane: there is no Open vSwitch lab here: {missing[0]}")
        if settings.ray.address:
            raise BadSettings(
                "data_plane: the lab's switches connect on loopback; leave ray.address out"
            )


def _check_role(settings: Settings, only: Only | None) -> None:
    by_ray = settings.southbound_placed == "ray"
    if by_ray and only in ("southbound", "configurators", "down"):
        raise BadSettings(
            f"southbound_placed: where {_words(only)} is used, Ray starts no southbound processes;"
            ' set southbound_placed = "outside" for all parts'
        )
    if only is None and not by_ray:
        raise BadSettings(
            'southbound_placed: "outside" is for parts that are started apart (--only); leave it'
            " out to start everything here"
        )
    if only in ("configurators", "down") and settings.ray.address is None:
        raise BadSettings(
            "ray.address: the configurators of --only configurators outlive it, on a Ray cluster;"
            " name it, such as ray://HOST:10001 or HOST:6379"
        )
    if only == "dashboard" and settings.tokens.hosts and not settings.tokens.operator:
        raise BadSettings(
            "tokens.operator: --only dashboard is for operators, and accepts no hosts' tokens; set"
            " a token for operators"
        )
    if only == "network" and settings.data_plane not in ("emulated", "ovs"):
        raise BadSettings(
            f"data_plane: --only network is for emulated and ovs, and not for"
            f" {settings.data_plane}: those switches are yours"
        )


def _check_learning(settings: Settings) -> None:
    hosts = settings.discovery.hosts
    if hosts == "declared":
        return
    if settings.data_plane == "onos":
        raise BadSettings(
            f"discovery.hosts: {hosts} is for switches that connect to dzflow itself; behind ONOS,"
            ' declare hosts by PUT /hosts, and set "declared"'
        )
    if not settings.discovers:
        raise BadSettings(
            f"discovery.hosts: {hosts} needs to know which ports lead to switches; set"
            ' discovery.links = "on"'
        )


def _words(only: Only | None) -> str:
    return "`dzflow down`" if only == "down" else f"--only {only}"


def _check_traces(settings: Settings) -> None:
    if settings.traces.to is None:
        return
    # Imported here: pyarrow takes memory that the process that starts the others does not need.
    from dispatcher.reports.trace_address import BadTraceAddress, check_address

    try:
        check_address(settings.traces.to.get_secret_value())
    except BadTraceAddress as error:
        raise BadSettings(f"traces.to: {error}") from None


def _has_telemetry() -> bool:
    """Whether the packages of the extra `otel` are installed."""
    try:
        return all(map(find_spec, _TELEMETRY))
    except ModuleNotFoundError:
        return False  # not even the package around it


def _may_circle(settings: Settings) -> bool:
    """Whether switches forward other traffic in a network that is known to have loops."""
    if settings.openflow.other_traffic == "leave":
        return False
    if settings.data_plane != "ovs" and "topology" not in settings.model_fields_set:
        return False  # the stored one counts
    known = topology(settings.topology)
    return len(known.links) >= len(known.switches)


def _emulated_elsewhere(settings: Settings) -> bool:
    """Whether emulated switches connect to southbound processes beyond loopback."""
    if settings.southbound_placed == "outside":
        return False  # then openflow.host says where, which is checked
    own_ports = settings.data_plane == "emulated" and not settings.openflow.ports
    return own_ports and not is_loopback(_stream_host(settings))


def _check_permissions(settings: Settings) -> None:
    for place, rule in enumerate(settings.permissions.rules):
        for member in ("subscribe", "advertise"):
            given = getattr(rule, member)
            if isinstance(given, str):
                try:
                    expr.parse(given)
                except BadInput as error:
                    at = f"permissions.rules[{place}].{member}"
                    raise BadSettings(f"{at}: {error}") from None
    if settings.permissions.rules and not settings.tokens.hosts:
        raise BadSettings(
            "permissions.rules: they are for callers with a host's token; set tokens.hosts"
        )


def find_hints(settings: Settings) -> list[str]:
    """Remarks on settings that work, but perhaps not as they are meant."""
    found = []
    if settings.data_plane == "external" and is_loopback(settings.openflow.host):
        found.append("switches on other machines need openflow.host, which is loopback now")
    if _may_circle(settings):
        found.append(
            "openflow.other_traffic: broadcasts circle in a network with loops unless the switches"
            " keep them off some links: docs/how-to/other-traffic.md"
        )
    if settings.openflow.cert and not settings.openflow.named_certificates:
        found.append(
            "every switch can claim every datapath id: openflow.named_certificates is false"
        )
    if settings.tokens.given and not is_loopback(settings.listen) and not settings.tls.cert:
        found.append("tokens travel unencrypted; set tls.cert and tls.key")
    if exposed := _plain_beyond_loopback(settings):
        found.append(f"{exposed[0]} is reached without TLS; set etcd.ca")
    if settings.ray.address and not settings.etcd.endpoints:
        found.append(
            "workers of another user or on another machine cannot reach the service's own etcd;"
            " set etcd.endpoints"
        )
    if settings.tokens.given and settings.data_plane == "emulated":
        found.append(
            "every program on this machine can send and receive events on the emulated network,"
            " without a token"
        )
    if not (is_loopback(_stream_host(settings)) or settings.streams.cert):
        found.append(
            "streams between machines are not encrypted; set streams.cert, streams.key and"
            " streams.ca"
        )
    onos = settings.onos
    if settings.data_plane == "onos" and onos.password == OnosSettings().password:
        found.append("onos.password is the one that everybody knows; change it in ONOS, too")
    if settings.data_plane == "onos" and onos.url.startswith("http://") and not _is_near(onos.url):
        found.append(
            "onos.password travels unencrypted; give ONOS a certificate, and onos.url https"
        )
    telemetry = settings.telemetry
    plain = telemetry.endpoint.startswith("http://") and not _is_near(telemetry.endpoint)
    if telemetry.enabled and telemetry.headers and plain:
        found.append("telemetry.headers travel unencrypted; give telemetry.endpoint https")
    return found + [text for path in _secret_files(settings) if (text := find_exposure(path))]


def _is_near(url: str) -> bool:
    """Whether a URL leads to this machine."""
    return is_loopback(urlsplit(url).hostname or "")


def _secret_files(settings: Settings) -> list[Path]:
    """The files with secrets that the settings name."""
    sections = (settings.tls, settings.streams, settings.openflow, settings.etcd)
    named = (*(section.key for section in sections), settings.ray.token_path)
    return [path for path in named if path is not None]


def _ray_is_safe(settings: Settings) -> bool:
    """Whether strangers cannot use the Ray cluster that is joined, as far as the settings tell."""
    if settings.ray.address is None or settings.ray.allow_anonymous:
        return True
    has_token = find_cluster_token(settings, os.environ) is not None
    return has_token or is_loopback(_host_of(settings.ray.address))


def _stream_host(settings: Settings) -> str:
    """The address at which workers listen, or one of them."""
    if settings.southbound_placed == "outside" and not is_loopback(settings.streams.host):
        return settings.streams.host
    if settings.ray.node_host:
        return settings.ray.node_host
    return _host_of(settings.ray.address) if settings.ray.address else "127.0.0.1"


def _host_of(address: str) -> str:
    """The host of a Ray address; `auto` means a node of this machine, which may be one of many."""
    return address.rpartition("://")[2].rpartition(":")[0].strip("[]") or address


def _plain_beyond_loopback(settings: Settings) -> list[str]:
    """The endpoints of etcd on other machines, if they are reached without TLS."""
    if settings.etcd.tls:
        return []
    hosts = {endpoint: host_of(endpoint) for endpoint in settings.etcd.endpoints}
    return [each for each, host in hosts.items() if host is not None and not is_loopback(host)]
