"""What every process of the service needs: etcd, streams, traces."""

from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from api.start.settings.certificates import stream_tls
from api.start.settings.settings import Settings
from configurators.environment import Environment
from configurators.store.etcd.client import Access
from configurators.streams.listener import Listener, connect
from configurators.tracing import Tracer

OWN_QUOTA = 4 << 30
"""Bytes of the database of the service's own etcd, unless the settings say otherwise."""


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


def environment(settings: Settings, tracer: Tracer | None = None) -> Environment:
    """The environment of a process: the real one, with streams as the settings say."""
    tls, ports = stream_tls(settings), settings.streams.ports
    among = range(ports[0], ports[1] + 1) if ports else ()
    return Environment(
        listener=partial(Listener, tls=tls, ports=among),
        connect=partial(connect, tls=tls),
        tracer=tracer,
    )


def tracing(
    settings: Settings, process: str, id: str
) -> AbstractAsyncContextManager[Tracer | None]:
    """The tracer of a process, open while the context lasts; None if traces are off."""
    if not settings.telemetry.enabled:
        return nullcontext()
    # Imported only if it is used: the packages need not be installed.
    from api.start.telemetry import open_tracer

    return open_tracer(settings.telemetry, process, id)
