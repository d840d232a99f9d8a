"""The id of the request that is being served, for answers and logs."""

import re
import secrets
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Empty outside of a request."""

_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def id_for(given: bytes | None) -> str:
    """The id that the caller gave, if it can be put into a log as it is; otherwise a new one."""
    if given is not None and _GIVEN.fullmatch(given):
        return given.decode("ascii")
    return secrets.token_hex(8)
