"""The errors of the store, and what a failed call to etcd means."""

from typing import Any, Literal

import grpc
from msgspec import Struct

from dzflow.errors import DzflowError


class StoreError(DzflowError):
    """The store did not do something."""


class StoreUnavailable(StoreError):
    """No member of etcd answered in time. Trying again later can help.

    With `maybe_applied`, the write may have been carried out: read before writing again.
    """

    def __init__(self, message: str, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class StoreFull(StoreError):
    """etcd's database has reached its quota; nothing can be written until room is made."""


class StoreRefused(StoreError):
    """etcd rejects the certificate, password, permission or form of a call; nothing was done."""


class Compacted(StoreError):
    """etcd no longer keeps the history after a revision: read the keys, and watch from there."""


class LeaseGone(StoreError):
    """The lease has expired or was revoked; nothing was written with it."""


class AnswerTooLarge(StoreError):
    """The answer is larger than the client accepts: ask for less. A write was carried out."""


class Verdict(Struct, frozen=True):
    """What a failed call means.

    - `never`: it was certainly not carried out; another member, or the same later, may do it.
    - `perhaps`: it may have been carried out; only repeatable calls may be sent again.
    - `token`: it was not carried out, because the token is not (or no longer) accepted.
    - `final`: it was not carried out, and retrying is useless: `error` says why.
    """

    outcome: Literal["never", "perhaps", "token", "final"]
    reason: str
    error: StoreError | None = None


_FULL = (
    "etcd's database has reached its quota. The service makes room by itself if it can; `dzflow"
    " etcd compact` does so at once. If that is not enough, give etcd a larger quota (etcd.quota;"
    " --quota-backend-bytes of an etcd of your own), and remove subscriptions that are not needed"
)
NOT_SENT = "not sent: "
"""How the reason of a call begins that has certainly not reached etcd (`direct_calls.py`)."""

_NOT_SENT = (
    NOT_SENT,
    "failed to connect to all addresses",
    "DNS resolution failed",
    "connections to all",
)
_NOT_PROPOSED = ("no leader", "raft proposal dropped", "too many requests", "not capable")
_BAD_TOKEN = ("invalid auth token", "revision of auth store is old", "revision in header is old")
_BAD_TLS = ("CERTIFICATE", "WRONG_VERSION_NUMBER", "TSI_PROTOCOL_FAILURE", "TSI_DATA_CORRUPTED")


def is_tls_trouble(reason: str) -> bool:
    """Whether a connection failed because the two sides do not accept each other's TLS."""
    return any(text in reason for text in _BAD_TLS)


def is_bad_token(reason: str) -> bool:
    """Whether a member does not, or no longer, know a token: members forget them in a restart."""
    return any(text in reason for text in _BAD_TOKEN)


def judge(code: Any, details: str | None) -> Verdict:
    """What the status of a failed call means."""
    reason = details or str(code)
    status = grpc.StatusCode
    if is_bad_token(reason):
        return Verdict("token", reason)
    if reason.startswith(_NOT_SENT) or any(text in reason for text in _NOT_PROPOSED):
        return Verdict("never", reason)
    if code == status.RESOURCE_EXHAUSTED:
        if "space exceeded" in reason:
            return Verdict("final", reason, StoreFull(_FULL))
        if "grpc: received message larger than max" in reason:  # said by etcd
            return Verdict("final", reason, StoreRefused(_refusal(f"it is too large, {reason}")))
        if "larger than max" in reason:  # said by the client
            return Verdict("final", reason, AnswerTooLarge(f"the answer is too large: {reason}"))
    if code == status.OUT_OF_RANGE and "compacted" in reason:
        return Verdict("final", reason, Compacted(f"etcd has compacted this revision ({reason})"))
    if code == status.NOT_FOUND and "lease" in reason:
        return Verdict("final", reason, LeaseGone("the lease has expired or was revoked"))
    if code in _REFUSALS:
        return Verdict("final", reason, StoreRefused(_refusal(reason)))
    return Verdict("perhaps", reason)


_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
}


def _refusal(reason: str) -> str:
    if "invalid user ID or password" in reason:
        return f"etcd does not accept the user or the password; check both ({reason})"
    if "user name is empty" in reason:
        return f"etcd asks for a user and password, or a certificate; give them ({reason})"
    if "permission denied" in reason:
        return f"etcd's user may not do this; grant a role for the whole prefix ({reason})"
    return f"etcd does not accept this: {reason}"
