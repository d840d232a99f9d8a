"""Problems have stable types, name the field, and can always be sent."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.problems import KINDS, document, invalid, naming, problem, respond
from api.http.schema.models import Begin
from dispatcher.errors import Problem

GOOD = {"host": "h1", "space": "stocks", "filter": {}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"host": 1}, "host"),
        ({"host": "a b"}, "host"),
        ({"host": "h" * 65}, "host"),
        ({"host": "h\x001"}, "host"),
        ({"space": ""}, "space"),
        ({"filter": 5}, "filter"),
        ({"filter": None}, "filter"),
        ({"filter": [1]}, "filter[0]"),
        ({"wait": "yes"}, "wait"),
        ({"wait": -1}, "wait"),
        ({"wait": 61}, "wait"),
        ({"wait": 10**400}, "wait"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": 10**400}, "ttl"),
        ({"ttl": True}, "ttl"),
        ({"label": "x" * 201}, "label"),
        ({"lable": "x"}, "lable"),
    ],
)
def test_an_invalid_member_is_named(changes: dict[str, object], field: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({**GOOD, **changes}, Begin)
    found = invalid(str(caught.value))
    assert (found.status, found.field) == (422, field)


@pytest.mark.parametrize("missing", list(GOOD))
def test_a_missing_member_is_named(missing: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({k: v for k, v in GOOD.items() if k != missing}, Begin)
    assert invalid(str(caught.value)).field == missing


def test_a_problem_has_the_members_of_the_standard() -> None:
    response = respond(problem("invalid", "no", "host"))
    body = msgspec.json.decode(response.body)
    assert response.headers["content-type"] == "application/problem+json"
    assert body == {
        "type": "/problems/invalid",
        "title": "The input is not valid",
        "status": 422,
        "detail": "no",
        "field": "host",
        "errors": [{"field": "host", "detail": "no"}],
    }


@pytest.mark.parametrize(("after", "header"), [(None, "1"), (0.2, "1"), (2.5, "3"), (7.0, "7")])
@pytest.mark.parametrize("status", [429, 503])
def test_a_problem_that_passes_says_when_to_try_again(
    status: int, after: float | None, header: str
) -> None:
    response = respond(Problem(status, "busy", "Busy", "wait", retry_after=after))
    assert response.headers["retry-after"] == header


def test_a_caller_without_a_token_learns_how_to_send_one() -> None:
    assert respond(problem("no-token", "…")).headers["www-authenticate"].startswith("Bearer")


def test_bad_input_names_a_field_even_if_the_dispatcher_does_not() -> None:
    assert naming(Problem(422, "empty-filter", "", ""), "filter").field == "filter"
    assert naming(Problem(422, "wrong-type", "", "", "price"), "filter").field == "price"
    assert naming(Problem(409, "in-use", "", ""), "filter").field is None


@given(st.sampled_from(sorted(KINDS)), st.text(), st.none() | st.text())
def test_every_text_can_be_sent(kind: str, detail: str, field: str | None) -> None:
    msgspec.json.decode(msgspec.json.encode(document(problem(kind, detail, field))))
    respond(problem(kind, detail, field))
