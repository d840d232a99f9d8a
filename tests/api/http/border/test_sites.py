"""Pages of other sites get nothing: neither by DNS rebinding, nor across origins."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Scope

from api.http.app_settings import ApiSettings, Token
from api.http.border.auth import ACCESS
from api.http.border.sites import Sites
from tests.rest import SCHEMA, problem_of, subscription
from tests.stack import Stack

EVIL = "http://evil.example"
SIMPLE = (
    "text/plain",
    "text/plain; charset=application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
)
"""What any page may send without asking, however wrong the content is."""


def routes() -> Iterator[tuple[str, str]]:
    """All operations, with names that do not exist."""
    for route in ACCESS:
        method, _, path = route.partition(" ")
        path = path.replace("/switches/{id}", "/switches/s1").replace("{name}", "attacked")
        yield method, path.replace("{id}", "s1-0000000000000000")
    yield "GET", "/docs"
    yield "GET", "/openapi.json"
    yield "OPTIONS", "/backup"


ROUTES = list(routes())


def get(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=60)


def test_a_rebound_name_gets_nothing_from_any_operation(client: httpx.Client) -> None:
    """The page's own name resolves to 127.0.0.1, so that for the browser it is the same origin."""
    name = f"evil.example:{urlsplit(str(client.base_url)).port}"
    for method, path in ROUTES:
        headers = {"Host": name, "Sec-Fetch-Site": "same-origin"}
        if method != "GET":
            headers["Origin"] = f"http://{name}"
        refused = problem_of(client.request(method, path, headers=headers), 403)
        assert refused["type"] == "/problems/foreign-name", (method, path)
        assert "http.names" in refused["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_a_page_of_another_site_gets_nothing_from_any_operation(
    client: httpx.Client, guarded: httpx.Client, headers: dict[str, str]
) -> None:
    for service in (client, guarded):
        for method, path in ROUTES:
            refused = problem_of(service.request(method, path, headers=headers), 403)
            assert refused["type"] == "/problems/foreign-origin", (method, path)


def test_what_the_review_did_no_longer_works(client: httpx.Client) -> None:
    assert client.get("/backup", headers={"Host": "evil.example"}).status_code == 403
    made = client.put("/spaces/attacked", json=SCHEMA, headers={"Origin": EVIL})
    assert made.status_code == 403
    problem_of(client.get("/spaces/attacked"), 404)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.8.9.10:99", "[::1]", "[::1]:8080"]
)
def test_loopback_names_are_ours(client: httpx.Client, host: str) -> None:
    assert client.get("/spaces", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "[2001:db8::1]:80",
        "::1",
        "",
    ],
)
def test_other_names_are_not(client: httpx.Client, host: str) -> None:
    problem_of(client.get("/spaces", headers={"Host": host}), 403)


def test_the_own_page_and_followed_links_are_served(client: httpx.Client) -> None:
    own = f"{client.base_url.scheme}://{client.base_url.netloc.decode()}"
    for headers in (
        {"Origin": own},
        {"Origin": own, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        },
    ):
        answer = client.get("/docs", headers=headers)
        assert answer.status_code == 200
        # And stays out of frames and of other pages' hands.
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("kind", SIMPLE)
def test_no_operation_takes_what_a_form_can_send(client: httpx.Client, kind: str) -> None:
    headers = {"Content-Type": kind}
    for method, path in ROUTES:
        for content in (b"", b"{}"):
            if method in ("POST", "PUT", "DELETE"):
                answer = client.request(method, path, content=content, headers=headers)
                assert problem_of(answer, 415)["type"] == "/problems/media-type", (method, path)


def test_renew_needs_no_body_and_takes_json(client: httpx.Client, space: str) -> None:
    made = client.post("/subscribe", json=subscription(space, ttl=60)).json()
    path = f"/subscriptions/{made['id']}/renew"
    assert client.post(path).status_code == 200
    assert client.post(path, json={}).status_code == 200
    problem_of(client.post(path, content=b"{}"), 415)
    problem_of(client.post(path, content=iter([b"{}"])), 415)


def test_a_service_with_tokens_has_any_name_unless_names_are_given(stack: Stack) -> None:
    named = {"Host": "dzflow.example"}
    assert get(f"{stack.guarded_url}/healthz", named).status_code == 200
    tokens = (Token("op-secret", "operator"),)
    with stack.serving(tokens=tokens, names=("DZFLOW.example",)) as url:
        assert get(f"{url}/healthz", named).status_code == 200
        assert get(f"{url}/healthz").status_code == 200
        problem_of(get(f"{url}/healthz", {"Host": "evil.example"}), 403)


def test_names_can_be_added_or_not_be_checked(stack: Stack) -> None:
    with stack.serving(names=("dzflow.example",)) as url:
        assert get(f"{url}/spaces", {"Host": "dzflow.example:80"}).status_code == 200
        problem_of(get(f"{url}/spaces", {"Host": "evil.example"}), 403)
    with stack.serving(names=("*",)) as url:
        assert get(f"{url}/spaces", {"Host": "evil.example"}).status_code == 200


def test_beyond_loopback_every_address_is_ours(stack: Stack) -> None:
    with stack.serving(any_address=True) as url:
        for host in ("192.0.2.1:8080", "[2001:db8::1]:8080", "localhost"):
            assert get(f"{url}/spaces", {"Host": host}).status_code == 200
        problem_of(get(f"{url}/spaces", {"Host": "evil.example"}), 403)


def test_an_origin_can_be_allowed(stack: Stack) -> None:
    ours = "https://ops.example"
    with stack.serving(origins=(ours,)) as url, httpx.Client(base_url=url, timeout=60) as client:
        answer = client.get("/spaces", headers={"Origin": ours, "Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == ours
        asked = {
            "Origin": ours,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "authorization, content-type",
        }
        allowed = client.options("/spaces/x", headers=asked)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == ours
        assert "PUT" in allowed.headers["access-control-allow-methods"]
        refused = client.options("/spaces/x", headers={**asked, "Origin": EVIL})
        problem_of(refused, 403)
        assert "access-control-allow-origin" not in refused.headers


# Without a service


def refusal(settings: ApiSettings, scheme: str = "http", **headers: str) -> str | None:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: Scope = {"type": "http", "method": "GET", "scheme": scheme, "headers": given}
    found = Sites(settings).refusal(scope)
    return found.type if found else None


def test_a_page_without_tls_is_not_the_page_of_a_service_with_tls() -> None:
    settings = ApiSettings(tokens=(Token("op-secret", "operator"),))
    for scheme, origin, refused in (
        ("https", "https://dzflow.example", None),
        ("https", "http://dzflow.example", "foreign-origin"),
        ("http", "http://dzflow.example", None),
        ("http", "https://dzflow.example", None),  # a proxy has taken the TLS off
        ("http", "https://dzflow.example:444", "foreign-origin"),
        ("http", "https://xdzflow.example", "foreign-origin"),
    ):
        found = refusal(settings, scheme, host="dzflow.example", origin=origin)
        assert found == refused, (scheme, origin)


def test_programs_that_are_no_browsers_need_no_headers() -> None:
    assert refusal(ApiSettings()) is None
    assert refusal(ApiSettings(), host="localhost") is None


def test_every_host_header_is_checked() -> None:
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "headers": [(b"host", b"localhost"), (b"host", b"evil.example")],
    }
    found = Sites(ApiSettings()).refusal(scope)
    assert found is not None
    assert found.type == "foreign-name"
