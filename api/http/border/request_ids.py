"""The id of the request that is being served; answers and logs have it."""

import re
import secrets
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Empty outside of a request."""

_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def id_for(given: bytes | None) -> str:
    """The id that the caller sent, if it is safe to log; otherwise a new one."""
    if given is not None and _GIVEN.fullmatch(given):
        return given.decode("ascii")
    return secrets.token_hex(8)
