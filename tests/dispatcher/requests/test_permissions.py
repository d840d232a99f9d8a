"""Permissions: without any, hosts may do everything; with some, what these include."""

import pytest

from configurators.state.spaces import LoadedSpace, new_space
from configurators.store.model import RecordKind
from dispatcher.errors import Forbidden
from dispatcher.requests.intake.permissions import Permission, Permissions
from tests.dispatcher.support import SCHEMA

STOCKS = LoadedSpace.of(new_space("stocks", 1, SCHEMA, "legs", 1))
SPORTS = LoadedSpace.of(new_space("sports", 2, SCHEMA, "legs", 1))
GIVEN = Permissions(
    [
        Permission("h1", "stocks", subscribe=True),
        Permission("h2", "s*", subscribe="price < 500", advertise={"symbol": "ACME"}),
        Permission("h2", "stocks", subscribe="price >= 500 and volume < 10"),
        Permission("h3", "stocks", subscribe="prise < 5"),
        Permission("gate-*", "*", subscribe=True, advertise=True),
    ]
)


def allowed(host: str, kind: RecordKind, space: LoadedSpace, given: object) -> bool:
    try:
        GIVEN.check(host, kind, space, given)
    except Forbidden:
        return False
    return True


def test_without_permissions_everything_is_allowed() -> None:
    Permissions().check("h1", "advertisement", STOCKS, {})


@pytest.mark.parametrize(
    ("host", "kind", "space", "given"),
    [
        ("h1", "subscription", STOCKS, {}),
        ("h2", "subscription", STOCKS, "price < 500"),
        ("h2", "subscription", STOCKS, [{"price": 5}, {"price": 7}]),
        ("h2", "subscription", STOCKS, "volume < 10"),  # by two permissions together
        ("h2", "subscription", SPORTS, "price < 400"),
        ("h2", "advertisement", STOCKS, 'symbol == "ACME" and price > 5'),
        ("gate-7", "advertisement", SPORTS, {}),
    ],
)
def test_what_lies_within_a_permission_is_allowed(
    host: str, kind: RecordKind, space: LoadedSpace, given: object
) -> None:
    for _ in range(2):
        assert allowed(host, kind, space, given)


@pytest.mark.parametrize(
    ("host", "kind", "space", "given"),
    [
        ("h1", "advertisement", STOCKS, {}),
        ("h1", "subscription", SPORTS, {}),
        ("h2", "subscription", STOCKS, {}),
        ("h2", "subscription", STOCKS, "price <= 500"),
        ("h2", "subscription", SPORTS, "volume < 10"),
        ("h2", "advertisement", STOCKS, "price > 5"),
        ("h3", "subscription", STOCKS, "price < 5"),  # the permission does not fit the space
        ("h4", "subscription", STOCKS, "price < 5"),
    ],
)
def test_everything_else_is_forbidden(
    host: str, kind: RecordKind, space: LoadedSpace, given: object
) -> None:
    for _ in range(2):
        assert not allowed(host, kind, space, given)


def test_a_refusal_says_what_is_allowed() -> None:
    with pytest.raises(Forbidden, match="must lie within 'price < 500'"):
        GIVEN.check("h2", "subscription", SPORTS, {})
    with pytest.raises(Forbidden, match="does not fit the space"):
        GIVEN.check("h3", "subscription", STOCKS, {})
