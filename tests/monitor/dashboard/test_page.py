"""The dashboard in a real browser, on a control plane that runs."""

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect

from tests.monitor.dashboard.browser import MARKUP, looking
from tests.rest import subscription
from tests.stack import Stack

VIEWS = {
    "overview": "Everything works.",
    "network": "tree 0",
    "event-space": "All partitions",
    "workers": "All southbound processes",
    "requests": "Live log",
    "try": "What the switches would let through",
    "spaces": "Attributes of stocks",
    "settings": "tokens.operator",
}
"""Views, and a text that each shows when it has its data."""


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_the_service_has(browser: Browser, stack: Stack, view: str) -> None:
    with looking(browser, stack.url, view) as page:
        expect(page.locator("main")).to_contain_text(VIEWS[view])
        expect(page.locator("#status")).to_have_text("ready")
        expect(page.locator("nav [aria-current]")).to_have_count(1)


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (390, "dark"), (1024, "light")])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_accessible_and_fits_a_phone_and_a_tablet(
    browser: Browser, stack: Stack, view: str, width: int, theme: str
) -> None:
    with looking(browser, stack.url, view, width=width, theme=theme) as page:
        expect(page.locator("main")).to_contain_text(VIEWS[view])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []


def test_a_request_is_seen_while_it_is_made(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url, "requests") as page:
        expect(page.locator("main")).to_contain_text("Nothing has changed")
        # Changes come from the answer to the call for the stream on.
        with page.expect_response(lambda answer: "types=record" in answer.url):
            page.reload()
        body = subscription("stocks", filter="price > 777")
        record = httpx.post(f"{stack.url}/subscribe", json=body, timeout=60).json()
        row = page.locator("tr", has_text=record["id"]).first
        expect(row).to_contain_text("price > 777")
        row.locator("a").click()
        expect(page.locator("main")).to_contain_text("pushed")


def test_a_partition_is_moved_by_clicking(browser: Browser, stack: Stack) -> None:
    def owner() -> str:
        found = httpx.get(f"{stack.url}/partitions", timeout=60).json()["items"]
        return str(next(one["configurator"] for one in found if one["id"] == partition))

    partition = httpx.get(f"{stack.url}/partitions", timeout=60).json()["items"][0]["id"]
    before = owner()
    with looking(browser, stack.url, "event-space") as page:
        page.get_by_role("link", name=partition, exact=True).click()
        page.get_by_role("button", name="Move", exact=True).click()
        row = page.locator("tr", has=page.get_by_role("link", name=partition, exact=True))
        expect(row).not_to_contain_text(before)
    assert owner() != before


def test_markup_that_a_user_has_written_is_shown_as_text(browser: Browser, stack: Stack) -> None:
    body = subscription("stocks", host="h4", label=MARKUP)
    record = httpx.post(f"{stack.url}/subscribe", json=body, timeout=60).json()
    with looking(browser, stack.url, f"requests/{record['id']}") as page:
        expect(page.locator("main")).to_contain_text(MARKUP)
        assert page.locator("main img").count() == 0
        assert "caught" not in page.title()


def test_a_service_that_goes_is_reported_and_its_return_is_noticed(
    browser: Browser, stack: Stack
) -> None:
    # Not by `looking`: the browser logs an error for each call that the service does not answer.
    with stack.serving() as url:
        port = int(url.rpartition(":")[2])
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/dashboard")
        expect(page.locator("#status")).to_have_text("ready")
        expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#notice")).to_contain_text("No live data")
    expect(page.locator("#status")).to_have_text("no answer")
    with stack.serving((), port):
        expect(page.locator("#notice")).to_be_hidden()
        expect(page.locator("#status")).to_have_text("ready")
        context.close()


def test_a_token_is_asked_for_and_a_wrong_one_is_refused(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.guarded_url, refusals=[401]) as page:
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main [role=alert]")).to_contain_text("not known")
        page.get_by_label("Token").fill(stack.tokens["operator"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main")).to_contain_text("Everything works.")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()


def test_a_host_sees_its_own_records_and_nothing_of_operators(
    browser: Browser, stack: Stack
) -> None:
    with looking(browser, stack.guarded_url, refusals=[401]) as page:
        page.get_by_label("Token").fill(stack.tokens["h2"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Workers").click()
        expect(page.locator("main")).to_contain_text("for operators")
        page.get_by_role("link", name="Requests").click()
        page.get_by_role("button", name="Search").click()
        expect(page.locator("main")).to_contain_text("Records that match")
        hosts = page.locator("section", has_text="Found").locator("tbody td:nth-child(4)")
        assert set(hosts.all_inner_texts()) == {"h2"}
