"""Checks of the settings before anything is started."""

from typing import Literal

from api.start.settings.settings import BadSettings, Settings, is_loopback
from dzflow import expr
from dzflow.errors import BadInput
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
    if only is not None and settings.stream_token is None:
        raise BadSettings("stream_token: parts that are started apart must share one; set it")
    _check_permissions(settings)
    if settings.data_plane == "ovs":
        missing = missing_prerequisites()
        if missing:
            raise BadSettings(f"data_plane: there is no Open vSwitch lab here: {missing[0]}")
        if settings.ray.address:
            raise BadSettings(
                "data_plane: the lab's switches connect on loopback; leave ray.address out"
            )


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
    if settings.tokens.given and not is_loopback(settings.listen) and not settings.tls.cert:
        found.append("tokens travel unencrypted; set tls.cert and tls.key")
    return found
