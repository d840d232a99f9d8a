"""Errors as callers see them."""

import pytest

from configurators.state.spaces import UnknownSpace
from configurators.store.keys import BadRecordId
from dispatcher.errors import Conflict, NotFound, TooManyRequests, problem_of
from dzflow.errors import BadInput, DzflowError


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (NotFound("no"), 404, "not-found"),
        (UnknownSpace("no"), 404, "not-found"),
        (BadRecordId("no"), 404, "not-found"),
        (BadInput("no"), 422, "invalid"),
        (Conflict("no", "key-reused"), 409, "key-reused"),
        (TooManyRequests("no", 3.0), 429, "too-many"),
        (DzflowError("no"), 503, "unavailable"),
    ],
)
def test_errors_become_problems(error: DzflowError, status: int, kind: str) -> None:
    problem = problem_of(error, "s1-1")
    assert (problem.status, problem.type, problem.detail, problem.id) == (
        status, kind, "no", "s1-1"
    )  # fmt: skip
    assert (problem.retry_after is not None) == (status in (429, 503))
