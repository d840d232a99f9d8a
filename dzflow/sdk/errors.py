"""What can go wrong between an application and the control plane, each by its name."""

from collections.abc import Mapping
from typing import Any

from dzflow.errors import BadInput, DzflowError


class Unreachable(DzflowError):
    """The control plane, or the host's own network, does not answer."""


class NotAcknowledged(DzflowError):
    """The switches have not acknowledged a request in time; it was withdrawn."""


class NoHost(BadInput):
    """Events need a host, and none was named, or the control plane does not know it."""


class NoInterface(BadInput):
    """It is not clear by which network interface events come and go."""


class HostFull(DzflowError):
    """Too many applications of this emulated host receive events already."""


class Closed(DzflowError):
    """The subscription, advertisement or control plane was closed before."""


class EventTooLarge(BadInput):
    """An event that does not fit into one datagram."""


class OutsideAdvertisement(BadInput):
    """An event that its publisher has not advertised; the switches would drop it."""


class BadAnswer(DzflowError):
    """The control plane's answer is not what this version of the SDK understands."""


class Refused(DzflowError):
    """The control plane has refused a call: `status`, and the members of the problem it named."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        title = str(problem.get("title") or f"the control plane answered {status}")
        detail = problem.get("detail")
        super().__init__(f"{title}: {detail}" if detail else title)


class InvalidRequest(Refused):
    """The call is malformed, or its filter or schema does not fit."""


class NotAuthorised(Refused):
    """The token is missing, wrong, or has not the role that this needs."""


class NotFound(Refused):
    """There is no such space, host or record."""


class Conflict(Refused):
    """The call contradicts what is there, such as deleting a space that is in use."""


class Busy(Refused):
    """Too much is under way; tried again until the time was up."""


class Unavailable(Refused):
    """A part of the control plane is down; tried again until the time was up."""


class RequestFailed(Refused):
    """Switches could not take a request; the reason says why, and nothing is left of it."""


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
    """The error that an answer of 400 or more stands for."""
    problem = body if isinstance(body, Mapping) else {}
    return _BY_STATUS.get(status, Refused)(status, problem)
