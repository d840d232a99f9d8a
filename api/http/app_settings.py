"""The settings of the REST service: tokens of callers, who may connect, and limits."""

from typing import Literal

from msgspec import Struct

Role = Literal["operator", "host"]


class Token(Struct, frozen=True):
    """A bearer token. A host's token may act for that host only, an operator's for all."""

    secret: str
    role: Role
    host: str | None = None

    def __repr__(self) -> str:
        return f"Token({self.role!r}, {self.host!r})"  # without the secret


class ApiSettings(Struct, frozen=True, kw_only=True):
    """Tokens (if there are none, callers need none) and limits; times are in seconds."""

    tokens: tuple[Token, ...] = ()
    max_body: int = 8 * 1024 * 1024
    max_backup: int = 1024 * 1024 * 1024  # bytes of a backup for /restore
    max_depth: int = 32  # of nested arrays and objects
    max_batch: int = 1_000
    body_timeout: float = 30.0  # until the whole body has arrived
    backup_timeout: float = 600.0  # the same for /restore
    send_timeout: float = 60.0  # until a client has read what was written
    max_requests: int = 2_000  # in progress at once, without streams
    max_streams: int = 4_000
    max_host_streams: int = 200  # of callers with the token of one host
    keep_alive: float = 15.0  # between keep-alives on a stream without changes
    names: tuple[str, ...] = ()  # of the API, beside loopback; `*`: any
    any_address: bool = False  # whether it may be called by addresses that are not loopback, too
    origins: tuple[str, ...] = ()  # of web pages that may call the API, beside its own
    proxies: tuple[str, ...] = ()  # addresses and networks of reverse proxies
    max_connections: int = 4_096
    max_address_connections: int = 1_024
    reserve: int = 64  # connections beyond the limits, for calls about health only
    head_timeout: float = 20.0  # until a TLS handshake, or the head of a request, has arrived
    idle_timeout: int = 5  # on a connection between requests
    default_wait: float = 10.0
    max_wait: float = 60.0
    drain: float = 12.0  # for requests in progress when the server stops
    max_kept_answers: int = 10_000  # to requests with an idempotency key that leave no record
    max_series: int = 10_000  # of counters that applications report
    lab: str = ""  # the name of the service whose Open vSwitch lab it uses; empty: it has none
