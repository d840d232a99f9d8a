"""The errors of calls to the dispatcher, and how callers see them."""

import re

from msgspec import Struct

from configurators.state.declared import BadDeclaration
from configurators.state.spaces import UnknownSpace
from configurators.store.keys import BadRecordId
from dzflow.attribute import BadSchema, FieldError
from dzflow.errors import BadInput, DzflowError
from dzflow.expr import ExprSyntaxError
from sdn.network.topology import UnknownHost

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class DispatcherError(DzflowError):
    """A call was refused; `status` is the HTTP status for it, `kind` a short name."""

    status = 500
    default_kind = "internal"

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind or self.default_kind


class NotFound(DispatcherError):
    """There is no such record, space, host or switch."""

    status = 404
    default_kind = "not-found"


class Conflict(DispatcherError):
    """The call conflicts with the present state; `kind` says in which way.

    Kinds: `key-reused` (idempotency key of another call), `conflict` (anything else). `ids` are the
    records in the way: those that use a space or host that is to be deleted, or that do not fit a
    new schema.
    """

    status = 409
    default_kind = "conflict"

    def __init__(self, message: str, kind: str = "", ids: tuple[str, ...] = ()) -> None:
        super().__init__(message, kind)
        self.ids = ids


class Retryable(DispatcherError):
    """The call cannot be served now; the caller may retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0, kind: str = "") -> None:
        super().__init__(message, kind)
        self.retry_after = retry_after


class TooManyRequests(Retryable):
    """A queue is full, or a rate limit is reached."""

    status = 429
    default_kind = "too-many"


class Unavailable(Retryable):
    """A part that is needed is down."""

    status = 503
    default_kind = "unavailable"


class QuotaReached(TooManyRequests):
    """A host or a space has as many records as it may have; some must end first."""

    default_kind = "quota"


class TooLarge(DispatcherError):
    """A filter or a record has more bytes than are stored."""

    status = 413
    default_kind = "too-large"


class Forbidden(DispatcherError):
    """The caller's permissions do not include what it asks for."""

    status = 403
    default_kind = "forbidden"


class Failed(DispatcherError):
    """A switch refused the change (its table is full, say); it was undone on all switches."""

    status = 502
    default_kind = "failed"


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a call, or one element of a batch, was refused.

    `field` names the attribute or member at fault, `position` the place in the text of a filter,
    counted from 0; `id` names the record, `ids` the records in the way.
    """

    status: int
    type: str
    title: str
    detail: str
    field: str | None = None
    id: str | None = None
    ids: tuple[str, ...] = ()
    retry_after: float | None = None
    position: int | None = None


def problem_of(error: DzflowError, id: str | None = None) -> Problem:
    """The problem that an error is shown as: bad input is 422, unknown hosts and spaces are 404."""
    if isinstance(error, DispatcherError):
        return Problem(
            error.status,
            error.kind,
            _title(error),
            str(error),
            id=id,
            ids=error.ids if isinstance(error, Conflict) else (),
            retry_after=error.retry_after if isinstance(error, Retryable) else None,
        )
    field = _field(error)
    if isinstance(error, UnknownHost | UnknownSpace | BadRecordId):
        status, kind = 404, "not-found"
    elif isinstance(error, BadInput):
        status, kind = 422, "invalid"
    else:
        status, kind = 503, "unavailable"
    after = 1.0 if status == 503 else None
    return Problem(
        status,
        kind,
        _title(error),
        str(error),
        field,
        id=id,
        retry_after=after,
        position=error.position if isinstance(error, ExprSyntaxError | FieldError) else None,
    )


def _title(error: DzflowError) -> str:
    return _CAPITAL.sub(" ", type(error).__name__).capitalize()


def _field(error: DzflowError) -> str | None:
    """The member at fault; of a schema, its path, such as `attributes[2].min`."""
    if isinstance(error, BadSchema) and error.index is not None:
        return f"attributes[{error.index}].{error.member}"
    if isinstance(error, BadSchema):
        return error.member or error.attribute
    if isinstance(error, ExprSyntaxError):
        return "filter"
    if isinstance(error, BadDeclaration):
        return error.field
    return error.attribute if isinstance(error, FieldError) else None
