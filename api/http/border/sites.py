"""Which web pages may call the API: checks of `Host`, `Origin` and `Sec-Fetch-Site`.

A page of any site can make a browser send requests to addresses that only the browser reaches. With
DNS rebinding it can even read the answers: its own name resolves to 127.0.0.1. Programs other than
browsers send no `Origin` and no `Sec-Fetch-Site`, and these checks do not concern them.
"""

from functools import lru_cache
from ipaddress import ip_address

from starlette.types import Scope

from api.http.app_settings import ApiSettings
from api.http.problems import problem
from dispatcher.errors import Problem

_OWN = (b"same-origin", b"none")  # none: the user has typed the address
_LONGEST = 253 + 2 + 6  # a name, brackets, a port
_DISTINCT = 256  # values of `Host` that are remembered


class Sites:
    """Decides by the headers of a request whether the page that sends it may do so."""

    def __init__(self, settings: ApiSettings) -> None:
        self._names = frozenset(map(_plain, ("localhost", *settings.names)))
        # A token is a better proof than a name: foreign pages do not have it.
        self._any_name = "*" in self._names or bool(settings.tokens and not settings.names)
        self._any_address = settings.any_address
        self._origins = frozenset(each.lower().encode() for each in settings.origins)
        self._is_ours = lru_cache(_DISTINCT)(self._check_host)

    def refusal(self, scope: Scope) -> Problem | None:
        """Why the request is refused (403), or None."""
        host = origin = site = None
        for name, value in scope["headers"]:
            if name == b"host":
                if not self._any_name and not self._is_ours(value[:_LONGEST]):
                    return _foreign_name(value)
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if origin is None and (site is None or site in _OWN):
            return None
        return self._check_page(scope, host, origin, site)

    def _check_page(
        self, scope: Scope, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> Problem | None:
        if origin is None:
            return None if _is_followed_link(scope) else _foreign_origin(site)
        if origin in self._origins:
            return None
        # A proxy may have taken the TLS off; nobody puts it on.
        schemes = (b"https",) if scope.get("scheme") == "https" else (b"http", b"https")
        if host is not None and origin in {scheme + b"://" + host for scheme in schemes}:
            return None
        return _foreign_origin(origin)

    def _check_host(self, value: bytes) -> bool:
        name = host_name(value.decode("latin-1"))
        if name in self._names:
            return True
        try:
            address = ip_address(name.strip("[]"))
        except ValueError:
            return False
        # An attacker can have a name resolve to any address, but an address is what it is.
        return address.is_loopback or self._any_address


def host_name(authority: str) -> str:
    """The name or address of `host:port`, in small letters."""
    name, colon, port = authority.rpartition(":")
    return (name if colon and port.isdecimal() else authority).lower()


def _plain(name: str) -> str:
    """A name as `host_name` gives it: IPv6 addresses are in brackets."""
    return (f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name).lower()


def _is_followed_link(scope: Scope) -> bool:
    """Whether a user has followed a link of another site: that site does not get the answer."""
    headers = dict(scope["headers"])
    return (
        scope["method"] == "GET"
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )


def _foreign_name(value: bytes) -> Problem:
    text = (
        f"the API does not answer to the name {_shown(value)}: call it by a loopback address, add"
        " the name to http.names, or protect the API with tokens"
    )
    return problem("foreign-name", text, "Host")


def _foreign_origin(value: bytes | None) -> Problem:
    text = (
        f"pages of other sites ({_shown(value or b'')}) may not call the API; allow an origin with"
        " http.origins"
    )
    return problem("foreign-origin", text, "Origin")


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
