"""Tokens: which callers are let in, and for which hosts they may act."""

import pytest

from api.http.app import ROUTERS
from api.http.app_settings import Token
from api.http.border.auth import ACCESS, Access, Guard
from api.http.border.route import Route
from api.http.problems import ApiProblem

GUARD = Guard([Token("op", "operator"), Token("one", "host", "h1"), Token("two", "host", "h2")])


def refusal(access: Access, header: str | None) -> int:
    with pytest.raises(ApiProblem) as caught:
        GUARD.admit(access, header)
    return caught.value.problem.status


def test_every_endpoint_has_a_role_and_every_role_an_endpoint() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    assert all(isinstance(route, Route) for route in routes)
    ours = [route for route in routes if isinstance(route, Route)]
    named = [f"{method} {route.path_format}" for route in ours for method in route.methods or ()]
    assert sorted(named) == sorted(ACCESS)


def test_a_token_shows_nobody_its_secret() -> None:
    assert "geheim" not in repr(Token("geheim", "host", "h1"))


def test_without_tokens_everybody_may_do_everything() -> None:
    caller = Guard([]).admit("operator", None)
    assert caller.may_act_for("h1")


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic b3A=", "op", "Bearer o", "Bearer opp", "Bearer \xff"],
)
def test_a_caller_without_a_known_token_is_refused(header: str | None) -> None:
    assert refusal("host", header) == 401
    assert refusal("operator", header) == 401
    anonymous = GUARD.admit("anyone", header)
    assert not anonymous.is_operator
    assert not anonymous.may_act_for("h1")


def test_where_anyone_is_let_in_a_token_is_still_known() -> None:
    assert GUARD.admit("anyone", "Bearer op").is_operator
    host = GUARD.admit("anyone", "Bearer one")
    assert (host.is_operator, host.host) == (False, "h1")
    assert Guard([]).admit("anyone", None).is_operator


def test_an_operator_may_act_for_all() -> None:
    for access in ("host", "operator"):
        caller = GUARD.admit(access, "bearer  op ")
        assert caller.may_act_for("h1")
        assert caller.may_act_for("h2")


def test_a_host_may_act_for_itself_only() -> None:
    caller = GUARD.admit("host", "Bearer one")
    caller.must_act_for("h1")
    with pytest.raises(ApiProblem) as caught:
        caller.must_act_for("h2")
    assert caught.value.problem.status == 403
    assert refusal("operator", "Bearer one") == 403


def test_a_hosts_token_needs_a_host() -> None:
    with pytest.raises(ValueError, match="host"):
        Guard([Token("x", "host")])
