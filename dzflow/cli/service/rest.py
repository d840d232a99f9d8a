"""Calls of the commands to a running control plane, without the SDK's client.

That one repeats calls; these commands show the state at this moment, or say that there is none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dzflow.cli.service.client import ServiceOptions, interruptible

if TYPE_CHECKING:
    import httpx

_TIMEOUT = 300.0  # seconds; a backup may be large


def get(
    service: ServiceOptions,
    path: str,
    *,
    timeout: float = _TIMEOUT,
    **params: str,
) -> Any:
    """The JSON value at a path; Unreachable if there is no answer, or the error that refuses it."""
    with interruptible(), open_client(service, timeout) as client:
        return checked(client.get(path, params=params)).json()


def get_ready(service: ServiceOptions, *, timeout: float = _TIMEOUT) -> tuple[bool, Any]:
    """Whether the service is ready, and its answer; errors as for `get`."""
    with interruptible(), open_client(service, timeout) as client:
        answer = client.get("/readyz")
        if answer.status_code not in (200, 503):
            checked(answer)
        return answer.status_code == 200, answer.json()


@contextmanager
def open_client(service: ServiceOptions, timeout: float = _TIMEOUT) -> "Iterator[httpx.Client]":
    """A client of the control plane; Unreachable if it does not answer."""
    import httpx

    from dzflow.sdk.errors import Unreachable
    from dzflow.sdk.rest.access import ApiAccess

    access = ApiAccess(service.url, service.token, ca=service.ca, timeout=timeout)
    with httpx.Client(**access.http_options()) as client:
        try:
            yield client
        except httpx.HTTPError as error:
            raise Unreachable(access.no_answer(error)) from None


def checked(answer: "httpx.Response") -> "httpx.Response":
    """The answer; if it is a problem, the error that says so."""
    from dzflow.sdk.errors import refused

    if answer.status_code >= 400:
        try:
            problem = answer.json()
        except ValueError:
            problem = {}
        raise refused(answer.status_code, problem)
    return answer
