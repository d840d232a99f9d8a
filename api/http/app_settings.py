"""What the application needs to be told: who may call it, and its limits."""

from typing import Literal

from msgspec import Struct

Role = Literal["operator", "host"]


class Token(Struct, frozen=True):
    """A bearer token. A host's token may act for that host only, an operator's for all."""

    secret: str
    role: Role
    host: str | None = None

    def __repr__(self) -> str:
        return f"Token({self.role!r}, {self.host!r})"  # the secret is nobody's business


class ApiSettings(Struct, frozen=True, kw_only=True):
    """Tokens (without any, nobody is asked for one) and limits; times are in seconds."""

    tokens: tuple[Token, ...] = ()
    max_body: int = 8 * 1024 * 1024
    max_backup: int = 1024 * 1024 * 1024  # what /restore takes
    max_depth: int = 32  # of nested arrays and objects
    max_batch: int = 1_000
    body_timeout: float = 30.0  # until the whole body has come
    backup_timeout: float = 600.0  # the same for /restore
    send_timeout: float = 60.0  # until a client has taken what was written
    max_requests: int = 2_000  # in flight at once, but for streams
    max_streams: int = 4_000
    max_host_streams: int = 200  # of who calls with the token of a host
    keep_alive: float = 15.0  # between signs of life on a stream without changes
    default_wait: float = 10.0
    max_wait: float = 60.0
