"""The live log in a real browser, at a high rate."""

import re

import httpx
from playwright.sync_api import Browser, expect

from tests.monitor.dashboard.browser import looking
from tests.rest import subscription
from tests.stack import Stack


def test_a_sampled_log_says_so(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url, "requests") as page:
        with page.expect_response(lambda answer: "types=record&most=20" in answer.url):
            page.reload()
        batch = [subscription("stocks", filter=f"price > {n}") for n in range(200)]
        made = httpx.post(f"{stack.url}/subscribe", json=batch, timeout=60).json()
        log = page.locator("section", has_text="Live log")
        expect(log).to_contain_text(re.compile(r"\d+ of \d+ changes are shown"))
    ids = [{"id": one["id"]} for one in made]
    httpx.post(f"{stack.url}/unsubscribe", json=ids, timeout=60).raise_for_status()
