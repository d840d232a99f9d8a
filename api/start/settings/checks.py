"""Checks of the settings before anything is started."""

from typing import Literal

from api.start.settings.settings import BadSettings, Settings, is_loopback
from configurators.store.etcd.endpoints import host_of
from sdn.lab import missing_prerequisites
from sdn.topologies import topology

Only = Literal["workers", "api"]
"""The parts to start, if not all: workers and network, or the API."""


def check_settings(settings: Settings, only: Only | None) -> None:
    """Refuse (BadSettings) settings that cannot work."""
    if "topology" in settings.model_fields_set:
        topology(settings.topology)
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
    if settings.data_plane == "ovs":
        missing = missing_prerequisites()
        if missing:
            raise BadSettings(f"data_plane: there is no Open vSwitch lab here: {missing[0]}")
        if settings.ray.address:
            raise BadSettings(
                "data_plane: the lab's switches connect on loopback; leave ray.address out"
            )


def find_hints(settings: Settings) -> list[str]:
    """Remarks on settings that work, but perhaps not as they are meant."""
    found = []
    if settings.data_plane == "external" and is_loopback(settings.openflow.host):
        found.append("switches on other machines need openflow.host, which is loopback now")
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
    return found


def _plain_beyond_loopback(settings: Settings) -> list[str]:
    """The endpoints of etcd on other machines, if they are reached without TLS."""
    if settings.etcd.tls:
        return []
    hosts = {endpoint: host_of(endpoint) for endpoint in settings.etcd.endpoints}
    return [each for each, host in hosts.items() if host is not None and not is_loopback(host)]
