"""The overview in a real browser: what is wrong, what to do about it, and what applications saw."""

import httpx
from playwright.sync_api import Browser, expect

from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import looking
from tests.stack import Stack


def test_a_switch_that_is_down_is_shown_with_advice(
    browser: Browser, etcd_server: TestEtcd
) -> None:
    # A control plane of its own: what is down here must not disturb other tests.
    with (
        Stack(etcd_server.access()) as stack,
        looking(browser, stack.url, refusals=[503]) as page,  # to read the tables of the switch
    ):
        wrong = page.locator("section", has_text="What is wrong")
        expect(wrong).to_contain_text("Everything works.")
        switch = stack.network.agents["s3"]

        async def drop() -> None:
            switch.drop(None)

        async def come_back() -> None:
            switch.come_back()

        stack.run(drop())
        row = wrong.locator("li", has_text="Check that the switch runs")
        expect(row).to_contain_text("s3")
        expect(row).to_contain_text("ago")
        row.get_by_role("link", name="Show it in the network").click()
        expect(page.locator("nav [aria-current]")).to_have_text("Network")
        stack.run(come_back())
        page.get_by_role("link", name="Overview").click()
        expect(wrong).to_contain_text("Everything works.")


def test_active_subscriptions_are_counted(browser: Browser, stack: Stack) -> None:
    def of_service() -> int:
        store = httpx.get(f"{stack.url}/readyz", timeout=60).json()["store"]
        return int(store["active_subscriptions"])

    with looking(browser, stack.url) as page:
        count = page.locator(".figure", has_text="Active subscriptions").locator("strong")
        before = of_service()
        expect(count).to_have_text(str(before))
        body = {"host": "h6", "space": "stocks", "filter": "price > 990"}
        made = httpx.post(f"{stack.url}/subscribe", json=body, timeout=60).json()
        expect(count).to_have_text(str(before + 1))
        httpx.delete(f"{stack.url}/subscriptions/{made['id']}", timeout=60).raise_for_status()
        expect(count).to_have_text(str(before))


def test_what_applications_have_counted_is_shown(browser: Browser, stack: Stack) -> None:
    counters = {"stocks": {"received": 200, "unwanted": 30}}
    body = {"host": "h2", "counters": counters}
    httpx.post(f"{stack.url}/reports", json=body, timeout=60).raise_for_status()
    with looking(browser, stack.url) as page:
        seen = page.locator(".figure", has_text="Unwanted")
        expect(seen).to_contain_text("15 %")
        expect(page.locator(".figure", has_text="Events seen")).to_contain_text("200 reported")
