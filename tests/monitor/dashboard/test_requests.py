"""The live log in a real browser, at a high rate."""

import httpx
from playwright.sync_api import Browser, expect

from tests.monitor.dashboard.browser import LIMIT, looking
from tests.rest import subscription
from tests.stack import Stack


def test_a_sampled_log_says_so(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url, "requests") as page:
        with page.expect_response(lambda answer: "types=record&most=20" in answer.url):
            page.reload()
        batch = [subscription("stocks", filter=f"price > {n}", ttl=60) for n in range(200)]
        httpx.post(f"{stack.url}/subscribe", json=batch, timeout=60).raise_for_status()
        log = page.locator("section", has_text="Live log")
        expect(log).to_contain_text("of 400 changes are shown", timeout=LIMIT)
        assert log.locator("tbody tr").count() < 100
