"""Callers and their roles: tokens, and the role that each endpoint needs."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from api.http.app_settings import Token
from api.http.problems import ApiProblem

Access = Literal["anyone", "host", "operator"]
"""The callers that are let in: anyone, without a token; hosts (for themselves) and operators; or
operators only."""

ACCESS: Mapping[str, Access] = {
    "POST /subscribe": "host",
    "POST /advertise": "host",
    "POST /unsubscribe": "host",
    "POST /unadvertise": "host",
    "GET /subscriptions": "host",
    "GET /subscriptions/{id}": "host",
    "PUT /subscriptions/{id}": "host",
    "DELETE /subscriptions/{id}": "host",
    "POST /subscriptions/{id}/renew": "host",
    "GET /advertisements": "host",
    "GET /advertisements/{id}": "host",
    "PUT /advertisements/{id}": "host",
    "DELETE /advertisements/{id}": "host",
    "POST /advertisements/{id}/renew": "host",
    "GET /advertisements/{id}/key": "host",
    "GET /subscriptions/{id}/keys": "host",
    "GET /subscriptions/{id}/publishers": "host",
    "GET /requests/{id}": "host",
    "GET /spaces": "host",
    "GET /spaces/{name}": "host",
    "PUT /spaces/{name}": "operator",
    "DELETE /spaces/{name}": "operator",
    "GET /spaces/{name}/shapes": "operator",
    "PUT /spaces/{name}/shapes": "operator",
    "GET /spaces/{name}/shapes/usage": "operator",
    "POST /spaces/{name}/key": "operator",
    "POST /explain": "host",
    "POST /publish": "host",
    "GET /hosts": "host",
    "PUT /hosts/{id}": "operator",
    "DELETE /hosts/{id}": "operator",
    "GET /host-proposals": "operator",
    "POST /host-proposals/{id}/accept": "operator",
    "POST /host-proposals/{id}/reject": "operator",
    "GET /topology": "host",
    "GET /switches": "operator",
    "PUT /switches/{id}": "operator",
    "DELETE /switches/{id}": "operator",
    "GET /switches/{id}/flows": "operator",
    "PUT /links/{id}": "operator",
    "DELETE /links/{id}": "operator",
    "GET /partitions": "operator",
    "GET /partitions/{id}/reach": "operator",
    "POST /partitions/{id}/migrate": "operator",
    "POST /partitions/plan": "operator",
    "GET /partitions/plan": "operator",
    "DELETE /partitions/plan": "operator",
    "GET /balancing": "operator",
    "GET /jobs": "operator",
    "GET /configurators": "operator",
    "POST /configurators": "operator",
    "GET /southbound": "operator",
    "POST /southbound": "operator",
    "GET /load": "operator",
    "GET /history": "operator",
    "POST /reports": "host",
    "GET /reports": "host",
    "GET /settings": "operator",
    "GET /about": "host",
    "GET /stream": "host",
    "GET /metrics": "operator",
    "GET /backup": "operator",
    "POST /restore": "operator",
    "POST /etcd/compact": "operator",
    "GET /healthz": "anyone",
    "GET /readyz": "anyone",
}
"""The role of every endpoint. An endpoint that is not listed here cannot be added to a router."""


class Caller(Struct, frozen=True):
    """The caller of a request: may act for `host` only, or for all hosts if it is None."""

    name: str
    host: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether the caller may see what concerns the whole service."""
        return self.host is None

    def may_act_for(self, host: str) -> bool:
        """Whether the caller may act for a host, and see its records."""
        return self.host is None or self.host == host

    def must_act_for(self, host: str, field: str = "host") -> None:
        """Refuse (403) if the caller may not act for this host."""
        if not self.may_act_for(host):
            raise self.refusal(field)

    def refusal(self, field: str = "host") -> ApiProblem:
        """The answer (403) to a request for another host."""
        return ApiProblem("forbidden", f"this token may act for {self.host} only", field)


EVERYBODY = Caller("anyone")
"""The caller of a service without tokens: may do everything."""

ANONYMOUS = Caller("anonymous", host="")
"""A caller without a known token, of a service that has tokens: may act for no host."""


class Guard:
    """Knows the tokens by their digests, so that the time of a look-up reveals nothing."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._known: dict[bytes, Caller] = {}
        for token in tokens:
            name = "operator" if token.role == "operator" else f"host {token.host}"
            host = None if token.role == "operator" else token.host
            if token.role == "host" and not host:
                raise ValueError("a host's token needs the host's id")
            self._known[_digest(token.secret.encode())] = Caller(name, host)

    @property
    def on(self) -> bool:
        """Whether callers need a token."""
        return bool(self._known)

    def admit(self, access: Access, authorization: str | None) -> Caller:
        """The caller; 401 without a known token, 403 if its role is not enough.

        Where anyone is let in, the token is optional, and an unknown one counts as none.
        """
        if not self.on:
            return EVERYBODY
        if access == "anyone":
            return self._find(authorization) or ANONYMOUS
        if not _secret(authorization):
            raise ApiProblem("no-token", "this call needs `Authorization: Bearer TOKEN`")
        caller = self._find(authorization)
        if caller is None:
            headers = {"WWW-Authenticate": 'Bearer realm="dzflow", error="invalid_token"'}
            raise ApiProblem("no-token", "this token is not known", headers=headers)
        if access == "operator" and caller.host is not None:
            raise ApiProblem("forbidden", "this call is for operators")
        return caller

    def _find(self, authorization: str | None) -> Caller | None:
        """The caller with this token, if it is known."""
        secret = _secret(authorization)
        return self._known.get(_digest(secret)) if secret else None


def _secret(authorization: str | None) -> bytes:
    """The token of an `Authorization` header; empty if there is none."""
    scheme, _, secret = (authorization or "").partition(" ")
    return secret.strip().encode("latin-1", "replace") if scheme.lower() == "bearer" else b""


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
