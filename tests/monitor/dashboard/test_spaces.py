"""Spaces in a real browser: made, changed, looked into and deleted by clicking."""

import httpx
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect

from tests.monitor.dashboard.browser import looking
from tests.rest import SCHEMA, subscription
from tests.stack import Stack


def test_a_space_is_made_by_clicking_and_errors_are_at_their_field(
    browser: Browser, stack: Stack
) -> None:
    with looking(browser, stack.url, "spaces", width=390, refusals=[422]) as page:
        page.get_by_role("button", name="New space").click()
        form = page.locator("form.space-form")
        form.locator("[name=name]").fill("weather")
        form.locator("[data-member=name]").fill("warmth")
        form.locator("[data-member=min]").fill("50")
        form.locator("[data-member=max]").fill("-50")
        form.get_by_role("button", name="Make the space").click()
        wrong = form.locator("[data-member=min]")
        expect(wrong).to_have_attribute("aria-invalid", "true")
        expect(wrong).to_be_focused()
        expect(form.locator("small.error")).to_contain_text("min must be less than max")
        found = Axe().run(page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wrong.fill("-60")
        form.get_by_role("button", name="Add an attribute").click()
        form.locator("[data-member=name]").last.fill("sky")
        form.locator("[data-member=type]").last.select_option("enum")
        form.locator("[data-member=values]").last.fill("clear, cloudy")
        form.locator("[name=shapes]").fill("4")
        form.get_by_role("button", name="Make the space").click()
        expect(page.get_by_text("weather was made")).to_be_visible()
        expect(page.locator("main")).to_contain_text("Attributes of weather")
        expect(form).to_have_count(0)
    made = httpx.get(f"{stack.url}/spaces/weather", timeout=60).json()
    assert [one["name"] for one in made["attributes"]] == ["warmth", "sky"]
    assert made["index"]["shapes"] == 4
    httpx.delete(f"{stack.url}/spaces/weather", timeout=60).raise_for_status()


def test_shapes_are_shown_in_words_and_a_space_in_use_is_not_deleted(
    browser: Browser, stack: Stack
) -> None:
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        client.put("/spaces/used", json=SCHEMA).raise_for_status()
        record = client.post("/subscribe", json=subscription("used")).json()
        with looking(browser, stack.url, "spaces", refusals=[409]) as page:
            used = page.locator("section", has_text="Attributes of used")
            used.get_by_role("button", name="Show shapes").click()
            expect(used).to_contain_text("1 active subscriptions")
            expect(used.locator(".usage tbody")).to_contain_text("to 1/")
            used.get_by_role("button", name="Delete", exact=True).click()
            used.get_by_role("button", name="Delete used").click()
            expect(used.locator(".outcome.error")).to_contain_text("Delete used:")
            client.delete(f"/subscriptions/{record['id']}").raise_for_status()
            used.get_by_role("button", name="Delete", exact=True).click()
            used.get_by_role("button", name="Delete used").click()
            expect(used).to_have_count(0)
