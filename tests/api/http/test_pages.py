"""The dashboard's files, as the service gives them."""

import re

import httpx

from monitor.dashboard import PAGE


def test_the_dashboard_runs_nothing_but_its_own_files(client: httpx.Client) -> None:
    page = client.get("/dashboard")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    loaded = re.findall(r'(?:src|href)="([^"#][^"]*)"', page.text)
    assert loaded
    for path in loaded:
        assert client.get(f"/{path}").status_code == 200, path


def test_all_files_of_the_dashboard_are_served(client: httpx.Client) -> None:
    for file in PAGE.rglob("*.*"):
        found = client.get(f"/dashboard/assets/{file.relative_to(PAGE)}")
        assert found.content == file.read_bytes()
        assert found.headers["cache-control"] == "no-cache"  # old and new files never mix
        if file.suffix == ".js":
            assert found.headers["content-type"].startswith("text/javascript")


def test_the_dashboard_needs_no_token_but_has_nothing_to_show_without(
    guarded: httpx.Client,
) -> None:
    assert guarded.get("/dashboard").status_code == 200
    assert guarded.get("/topology").status_code == 401


def test_no_file_outside_the_dashboard_is_served(client: httpx.Client) -> None:
    assert client.get("/dashboard/assets/%2e%2e/__init__.py").status_code == 404
