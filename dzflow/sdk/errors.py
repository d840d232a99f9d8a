"""The errors that an application can get from the SDK."""

from collections.abc import Mapping
from typing import Any

from dzflow.errors import BadInput, DzflowError
from dzflow.text import printable

CLIENT_CLOSED = "the control plane's client is closed; make another one"
FORKED = "this client was made before the fork; make one in the child process"


class Unreachable(DzflowError):
    """The control plane, or the host's own network, does not answer."""


class NotAcknowledged(DzflowError):
    """The switches have not acknowledged a request in time; the SDK has withdrawn it."""


class NoHost(BadInput):
    """The client has no host name, or the control plane does not know the host."""


class NoInterface(BadInput):
    """The network interface for events does not exist, or must be named."""


class HostFull(DzflowError):
    """The emulated host has no room for another application that receives events."""


class Closed(DzflowError):
    """The subscription, advertisement or client is closed."""


class WrongThread(DzflowError):
    """A blocking call in the SDK's own thread, for example in `__del__` or a logging handler."""


class EventTooLarge(BadInput):
    """The event does not fit into one datagram."""


class OutsideAdvertisement(BadInput):
    """The publisher has not advertised this event; the switches would drop it."""


class BadAnswer(DzflowError):
    """This version of the SDK does not understand the control plane's answer."""


class Refused(DzflowError):
    """The control plane has refused a call; `status` and `problem` say why."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        title = str(problem.get("title") or f"the control plane answered {status}")
        detail = problem.get("detail")
        # Applications print and log it: what others have written must not steer a terminal.
        super().__init__(printable(f"{title}: {detail}" if detail else title))


class InvalidRequest(Refused):
    """The call is malformed, or its filter or schema is invalid."""


class NotAuthorised(Refused):
    """The token is missing or wrong, or its role does not allow the call."""


class NotFound(Refused):
    """There is no such space, host or record."""


class Conflict(Refused):
    """The call conflicts with the current state, such as deleting a space that is in use."""


class Busy(Refused):
    """The control plane was overloaded until the timeout."""


class Unavailable(Refused):
    """A part of the control plane was down until the timeout."""


class RequestFailed(Refused):
    """A switch refused a request, for example because a table is full; it was undone."""


_BY_STATUS: dict[int, type[Refused]] = {
    400: InvalidRequest,
    401: NotAuthorised,
    403: NotAuthorised,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: Busy,
    502: RequestFailed,
    503: Unavailable,
}


def refused(status: int, body: object) -> Refused:
    """The error for an answer with a status of 400 or more."""
    problem = body if isinstance(body, Mapping) else {}
    return _BY_STATUS.get(status, Refused)(status, problem)
