"""Settings in a real browser: operators see them, but nobody sees a secret."""

import re

from playwright.sync_api import Browser, expect

from tests.monitor.dashboard.browser import looking
from tests.stack import HIDDEN, Stack


def test_settings_are_shown_without_secrets(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url, "settings") as page:
        row = page.locator("tr", has_text="tokens.operator")
        expect(row).to_contain_text("secret, set")
        expect(page.locator("tr", has_text="fastapi")).to_be_visible()
        assert HIDDEN not in page.content()
        page.get_by_label("only those that were set").check()
        expect(page.locator("tr", has_text="data_plane")).to_have_count(0)
        expect(row).to_be_visible()
        with page.expect_popup() as opened:
            page.get_by_role("link", name="REST interface").click()
        expect(opened.value.locator("body")).to_contain_text("dzflow")


def test_a_host_sees_versions_but_no_settings(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.guarded_url, "settings", refusals=(401, 403)) as page:
        page.get_by_label("Token").fill(stack.tokens["h1"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main")).to_contain_text("Settings are for operators")
        expect(page.locator("main")).to_contain_text("fastapi")
        # A link would be refused: it sends no token.
        metrics = page.locator(".links li", has_text=re.compile("^Metrics"))
        expect(metrics.get_by_role("link")).to_have_count(0)
        expect(metrics.get_by_role("button", name="copy curl")).to_be_visible()
