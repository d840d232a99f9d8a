"""The workers: their time line, and how many there should be."""

import httpx
from playwright.sync_api import Browser, expect

from configurators.store.keys import RAY
from tests.monitor.dashboard.browser import looking
from tests.stack import Stack
from tests.support import until_sync


def test_a_move_by_clicking_appears_on_the_time_line(browser: Browser, stack: Stack) -> None:
    partition = httpx.get(f"{stack.url}/partitions", timeout=60).json()["items"][-1]["id"]
    with looking(browser, stack.url, "event-space") as page:
        page.get_by_role("link", name=partition, exact=True).click()
        page.get_by_role("button", name="Move", exact=True).click()
        expect(page.locator(".outcome")).to_contain_text("done")
        page.get_by_role("link", name="Workers").click()
        mark = page.locator(f'.happened.move[aria-label*="{partition} moved from"]')
        expect(mark.last).to_be_visible()
        expect(page.locator(".time-line")).to_contain_text("configurator-0")
        told = page.get_by_role("region", name="Events of the time line")
        expect(told.locator("tr", has_text=f"{partition} moved").first).to_contain_text("by hand")


def test_scaling_says_what_is_missing_and_is_done_by_clicking(
    browser: Browser, stack: Stack
) -> None:
    etcd = stack.dispatcher.etcd
    with looking(browser, stack.url, "workers", refusals=[409]) as page:
        count = page.get_by_label("How many: Configurators")
        expect(count).to_have_value("2")
        count.fill("3")
        scale = page.get_by_role("button", name="Scale", exact=True).first
        scale.click()
        said = page.locator(".outcome.error")
        expect(said).to_contain_text("no process starts and ends workers now")
        # From now on a process says that it starts workers; it starts none.
        stack.run(etcd.put(RAY, b""))
        try:
            count.fill("3")
            with page.expect_request(lambda asked: asked.method == "POST") as asked:
                scale.click()
            assert len(asked.value.headers["idempotency-key"]) == 32
            # Nothing is done yet, and the page does not say so.
            expect(page.locator(".outcome").first).to_contain_text("accepted, and in progress")
            until_sync(lambda: stack.dispatcher.workers.wanted("configurators") == 3)
            count.fill("2")
            scale.click()
            line = page.locator('.happened.scale[aria-label*="2 configurators wanted; 3 before"]')
            expect(line).to_be_visible()
        finally:
            stack.run(etcd.delete(RAY))
