"""Bodies and checks for tests of the REST interface."""

from typing import Any

import httpx

SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 1000},
    ],
    # Few shapes are found quickly.
    "index": {"kind": "fields", "budget": 4, "shapes": 4},
}


def subscription(space: str, /, **more: object) -> dict[str, Any]:
    """A valid request; `more` replaces and adds members."""
    return {"host": "h2", "space": space, "filter": {"price": {"gte": 420}}, **more}


def advertisement(space: str, /, **more: object) -> dict[str, Any]:
    """A valid request; `more` replaces and adds members."""
    return {"host": "h1", "space": space, "filter": {}, **more}


def shown_flows(flows: list[dict[str, Any]]) -> list[str]:
    """Entries of a switch as sorted text, without what they have counted."""
    return sorted(str({**flow, "packets": None, "bytes": None}) for flow in flows)


def problem_of(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    """The problem in an answer; checks its form and status."""
    assert response.status_code in statuses, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"]
    problem: dict[str, Any] = response.json()
    assert problem["type"].startswith("/problems/")
    assert problem["title"]
    assert problem["detail"]
    assert problem["status"] == response.status_code
    return problem
