"""The map of partitions: details, moves, proposals and plans, by clicking."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from configurators.store.documents import encode
from configurators.store.keys import wanted_key
from configurators.store.model import Wanted
from monitor.jobs.scheduler import JobOptions
from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import LIMIT, looking
from tests.stack import Stack, StackOptions
from tests.support import until_sync

STAND_IN = Path(__file__).parents[1] / "jobs" / "stand_in.py"
SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}
PLAN = {
    "space": "prices",
    "version": 0,
    "number": 0,
    "map": {"plan": "legs", "root": {"bit": 0, "one": {"bit": 1}}},
    "assignment": {"0-0": "configurator-1"},
    "reasons": ["90% of the work was where price >= 512"],
}
RESULT = {
    "spaces": [
        {
            "space": "prices",
            "before": {"imbalance": 1.8, "shares": {"configurator-0": 0.9, "configurator-1": 0.1}},
            "after": {"imbalance": 1.1, "shares": {"configurator-0": 0.55, "configurator-1": 0.45}},
            "plan": PLAN,
            "why": "",
        }
    ]
}


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A control plane whose scheduled job proposes a plan; a stand-in makes the result."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "how").write_text("done")
    (folder / "result").write_text(json.dumps(RESULT))
    command = (sys.executable, str(STAND_IN), str(folder))
    jobs = JobOptions(
        every=3.0,
        traces="x",
        folder=folder / "logs",
        time_limit=600.0,
        command=command,
        niceness=0,
    )
    options = StackOptions(configurators=2, partitions=1, jobs=jobs)
    with Stack(etcd_server.access(), options) as running:
        httpx.put(f"{running.url}/spaces/prices", json=SCHEMA, timeout=60).raise_for_status()
        until_sync(lambda: partitions(running))
        yield running


def partitions(stack: Stack) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = httpx.get(f"{stack.url}/partitions", timeout=60).json()["items"]
    return items


def bring(stack: Stack, to: str) -> dict[str, Any]:
    """A partition that belongs to a configurator now."""
    one = partitions(stack)[0]
    if one["configurator"] != to:
        path = f"{stack.url}/partitions/{quote(one['id'], safe='')}/migrate"
        assert httpx.post(path, json={"to": to}, timeout=60).status_code == 200
    return one


def test_a_plan_of_the_job_is_shown_beside_the_map_dismissed_and_applied(
    browser: Browser, stack: Stack
) -> None:
    with looking(browser, stack.url, "event-space") as page:
        proposal = page.locator(".proposal", has_text="The Spark job proposes")
        expect(proposal).to_contain_text("90% of the work was where price >= 512", timeout=LIMIT)
        expect(proposal).to_contain_text("1.8 times the mean")
        expect(proposal).to_contain_text("1.1 times the mean")
        maps = proposal.locator("svg.space")
        expect(maps).to_have_count(2)
        expect(maps.nth(0).locator(".cell")).to_have_count(1)
        expect(maps.nth(1).locator(".cell.changed")).to_have_count(5)
        page.get_by_role("button", name="Dismiss").click()
        expect(proposal).to_have_count(0)
        page.reload()
        expect(page.locator("main")).to_contain_text("1 of them dismissed", timeout=LIMIT)
        page.get_by_role("button", name="Show dismissed proposals").click()
        page.get_by_role("button", name="Apply plan").click()
        plan = page.locator(".plan")
        expect(plan).to_contain_text("1 of 1 steps", timeout=LIMIT)
        expect(plan.locator(".pill.good").first).to_have_text("done", timeout=LIMIT)
        expect(proposal).to_contain_text("out of date", timeout=LIMIT)
        expect(page.get_by_role("button", name="Apply plan")).to_be_disabled()
    leaves = {one["leaf"]: one for one in partitions(stack)}
    assert len(leaves) == 5
    assert leaves["0-0"]["configurator"] == "configurator-1"
    assert leaves["0-0"]["words"] == "price <= 511"


def test_what_the_balancer_proposes_is_applied_by_clicking(browser: Browser, stack: Stack) -> None:
    bring(stack, "configurator-1")

    def answer_early(route: Route) -> None:
        """As if the move went on after the answer."""
        answer = route.fetch()
        route.fulfill(response=answer, status=202, json={**answer.json(), "phase": "copying"})

    # This configurator is to leave; the balancer of this stack only says what it would do.
    etcd = stack.dispatcher.etcd
    stack.run(etcd.put(wanted_key("configurators"), encode(Wanted(0))))
    with looking(browser, stack.url, "event-space") as page:
        page.route("**/migrate", answer_early)
        proposal = page.locator(".proposal", has_text="The balancer proposes")
        expect(proposal).to_contain_text("configurator-1 is leaving", timeout=LIMIT)
        expect(proposal.locator(".cell.changed").first).to_be_visible()
        figures = proposal.get_by_role("region", name="Predicted by")
        expect(figures).not_to_contain_text("configurator-1")  # it is leaving
        proposal.get_by_role("button", name="Apply moves").click()
        expect(proposal).to_have_count(0, timeout=LIMIT)
        expect(page.locator(".outcome").first).to_contain_text(": done.", timeout=LIMIT)
    assert {one["configurator"] for one in partitions(stack)} == {"configurator-0"}
    stack.run(etcd.put(wanted_key("configurators"), encode(Wanted(1))))


def test_a_picked_partition_shows_words_load_and_its_history(
    browser: Browser, stack: Stack
) -> None:
    until_sync(lambda: stack.dispatcher.workers.wanted("configurators") != 0)
    moved = bring(stack, "configurator-1")
    with looking(browser, stack.url, "event-space") as page:
        page.get_by_role("button", name=f"{moved['id']}:").press("Enter")
        text = f"{moved['words']} in space prices"
        expect(page.locator("main")).to_contain_text(text, timeout=LIMIT)
        history = page.get_by_role("region", name=f"History of {moved['id']}")
        expect(history).to_contain_text("to configurator-1", timeout=LIMIT)
        expect(page.get_by_role("img", name="Load: share of time")).to_be_visible()


def test_a_hot_spot_is_hatched_and_named(browser: Browser, stack: Stack) -> None:
    draw = """async () => {
        const { colours, spaceMap } = await import("/dashboard/assets/js/space_map.js");
        const part = (id, load) => ({ id, name: id, owner: "c0", load, note: "" });
        const parts = [part("a", 0.9), part("b", 0.1), part("c", 0.05)];
        document.querySelector("main").replaceChildren(spaceMap("Test", parts, colours(["c0"])));
    }"""
    with looking(browser, stack.url, "spaces") as page:
        expect(page.locator("main")).to_contain_text("prices", timeout=LIMIT)
        page.evaluate(draw)
        hot = page.locator(".cell.hot")
        expect(hot).to_have_count(1)
        expect(hot).to_contain_text("hot spot")
        expect(hot.locator(".hatched")).to_have_count(1)
        assert "85.7 % of all load" in str(hot.get_attribute("aria-label"))


def test_a_map_of_many_partitions_is_bounded(browser: Browser, stack: Stack) -> None:
    draw = """async () => {
        const { colours, spaceMap } = await import("/dashboard/assets/js/space_map.js");
        const parts = Array.from({ length: 600 }, (_, place) =>
            ({ id: `p${place}`, name: `p${place}`, owner: "c0", load: 0.001 * place, note: "" }));
        document.querySelector("main").replaceChildren(
            spaceMap("Test", parts, colours(["c0"]), { pick: () => {} }));
    }"""
    with looking(browser, stack.url, "spaces") as page:
        expect(page.locator("main")).to_contain_text("prices", timeout=LIMIT)
        page.evaluate(draw)
        expect(page.locator(".cell")).to_have_count(512)
        expect(page.locator(".cell.still")).to_have_attribute("aria-label", re.compile("89 others"))
