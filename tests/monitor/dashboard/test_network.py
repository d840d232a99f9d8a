"""The network view in a real browser: failures, what is used, tables in words, differences."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Route, expect

from sdn.openflow.protocol.codec import decode_flow_mod, encode_ops
from sdn.openflow.protocol.constants import V1_4
from sdn.tables.flows import Change, FlowEntry, FlowOp
from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import LIMIT, looking
from tests.rest import SCHEMA, advertisement, subscription
from tests.stack import Stack, StackOptions
from tests.support import until_sync

LOW, LOW_IN_WORDS = "price < 100", "price < 125"
"""A filter, and the region that the index of the tests has for it."""


@pytest.fixture(scope="module")
def line(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane of its own: what is down here must not disturb other tests."""
    with (
        Stack(etcd_server.access(), StackOptions(topology="line:3")) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        client.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        client.post("/advertise", json=advertisement("stocks")).raise_for_status()
        client.post(
            "/subscribe", json=subscription("stocks", host="h3", filter=LOW)
        ).raise_for_status()
        yield running


@pytest.fixture(scope="module")
def low(stack: Stack) -> Stack:
    """The shared stack; host h5 at switch s9 wants low prices."""
    body = subscription("stocks", host="h5", filter=LOW)
    httpx.post(f"{stack.url}/subscribe", json=body, timeout=60).raise_for_status()
    return stack


def on_loop(stack: Stack, work: Callable[[], object]) -> None:
    """Call something on the loop of the stack."""

    async def call() -> None:
        work()

    stack.run(call())


def test_an_entry_that_is_missing_on_the_switch_is_listed(browser: Browser, line: Stack) -> None:
    switch = line.network.switches["s2"]

    def lose(entry: FlowEntry) -> None:
        """Remove an entry without a word to any controller."""
        message = encode_ops(V1_4, [FlowOp(Change.DELETE, entry)], 0)
        assert switch.tables.apply(decode_flow_mod(message), message)

    with looking(browser, line.url, "network/s2", refusals=[503]) as page:
        detail = page.locator(".detail")
        expect(detail).to_contain_text("switch agree", timeout=LIMIT)
        found = next(
            one
            for one in switch.entries()
            if isinstance(one, FlowEntry) and one.table > 0 and one.match and one.actions
        )
        on_loop(line, lambda: lose(found))
        detail.get_by_role("button", name="Read again").click()
        expect(detail.locator(".pill.warn")).to_have_text("Changing: 1 missing, 0 too many")
        # The second reading has the same difference.
        expect(detail.locator(".pill.bad")).to_have_text(
            "They differ: 1 missing, 0 too many", timeout=LIMIT
        )
        missing = detail.get_by_role("region", name="Missing")
        expect(missing.locator("tbody tr")).to_have_count(1)
        expect(missing).to_contain_text(LOW_IN_WORDS)
        on_loop(line, switch.restart)  # when it is back, it is repaired
        until_sync(lambda: found in switch.entries())
        detail.get_by_role("button", name="Read again").click()
        expect(detail).to_contain_text("switch agree", timeout=LIMIT)


def test_a_link_that_is_down_is_shown(browser: Browser, line: Stack) -> None:
    link = line.network.topology.links[0]
    with looking(browser, line.url, "network") as page:
        expect(page.locator("main")).to_contain_text("2 links up", timeout=LIMIT)
        on_loop(line, lambda: line.network.set_link(link, False))
        expect(page.locator("svg .link.down")).to_have_count(1, timeout=LIMIT)
        on_loop(line, lambda: line.network.set_link(link, True))
        expect(page.locator("svg .link.down")).to_have_count(0, timeout=LIMIT)


# The last one on this network: it takes a while until all trees are as they were.
def test_a_switch_that_goes_down_is_shown_with_its_reason_and_comes_back(
    browser: Browser, line: Stack
) -> None:
    agent = line.network.agents["s3"]
    with looking(browser, line.url, "network/s3", refusals=[503]) as page:
        detail, node = page.locator(".detail"), page.locator('.node[data-id="s3"]')
        expect(detail).to_contain_text("switch agree", timeout=LIMIT)
        on_loop(line, lambda: agent.drop(None))
        expect(page.locator("svg .node.switch.bad")).to_have_count(1, timeout=LIMIT)
        reason = httpx.get(f"{line.url}/switches", timeout=60).json()["items"][2]["reason"]
        expect(node).to_have_attribute("aria-label", re.compile(f"s3: down, {reason}"))
        expect(page.locator("main")).to_contain_text("2 of 3 switches up")
        expect(detail).to_contain_text(reason)
        expect(detail).to_contain_text("Since", timeout=LIMIT)
        expect(detail).to_contain_text("The switch cannot be read", timeout=LIMIT)
        on_loop(line, agent.come_back)
        expect(page.locator("main")).to_contain_text("3 of 3 switches up", timeout=LIMIT)
        expect(detail).to_contain_text("switch agree", timeout=LIMIT)


def test_tables_are_shown_in_words_and_can_be_searched(browser: Browser, low: Stack) -> None:
    with looking(browser, low.url, "network/s9") as page:
        entries = page.get_by_role("region", name="Entries of s9")
        expect(entries).to_contain_text(LOW_IN_WORDS, timeout=LIMIT)
        expect(page.locator(".detail")).to_contain_text("flow operations/s", timeout=LIMIT)
        page.get_by_label("Find").fill("no such words")
        expect(page.locator(".detail")).to_contain_text("No entry matches.")
        page.get_by_label("Find").fill("125 h5")
        row = entries.locator("tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text(LOW_IN_WORDS)
        expect(row).to_contain_text("h5")


def test_a_partition_shows_what_it_uses(browser: Browser, stack: Stack) -> None:
    partitions = httpx.get(f"{stack.url}/partitions", timeout=60).json()["items"]
    reaches = [
        httpx.get(f"{stack.url}/partitions/{quote(one['id'], safe='')}/reach", timeout=60).json()
        for one in partitions
    ]
    reach = max(reaches, key=lambda one: len(one["switches"]))
    with looking(browser, stack.url, "network") as page:
        name = f"partition {reach['partition']}"
        page.locator(f'option[value="{name}"]').wait_for(state="attached")
        page.get_by_label("Show").select_option(name)
        used = page.locator("svg .node.switch.used")
        expect(used).to_have_count(len(reach["switches"]), timeout=LIMIT)
        expect(page.locator("svg .link.used")).to_have_count(len(reach["links"]))
        expect(page.locator("#network-found")).to_contain_text("Switches that it uses")
        page.get_by_role("button", name="switch s7:").press("Enter")  # it stays marked
        expect(page.locator(".detail")).to_contain_text("Switch s7")
        expect(used).to_have_count(len(reach["switches"]))


def test_a_filter_shows_the_switches_that_would_change(browser: Browser, stack: Stack) -> None:
    body = {"space": "stocks", "host": "h8", "filter": "price < 100"}
    found = httpx.post(f"{stack.url}/explain", json=body, timeout=60).json()
    switches = {one["switch"] for one in found["flows"]}
    assert switches
    with looking(browser, stack.url, "network", refusals=[422]) as page:
        page.get_by_label("Subscriber").select_option("h8")
        expect(page.get_by_label("Space")).to_have_value("stocks")  # its attributes are known
        page.get_by_label("Filter").fill("pri")
        expect(page.locator("#completions [role=option]")).to_contain_text("price")
        page.get_by_label("Filter").fill("price < ")
        expect(page.locator("#filter-error .error")).to_be_visible(timeout=LIMIT)
        page.get_by_label("Filter").fill("price < 100")
        expect(page.locator("svg .node.changes")).to_have_count(len(switches), timeout=LIMIT)
        expect(page.locator('.node[data-id="h8"].used')).to_have_count(1)


def test_a_host_shows_what_it_wants_and_gets(browser: Browser, low: Stack) -> None:
    with looking(browser, low.url, "network") as page:
        page.get_by_role("button", name="host h5").click()
        expect(page.locator(".detail")).to_contain_text("Wants: 1 subscription", timeout=LIMIT)
        gets = page.get_by_role("region", name="Gets: ")
        expect(gets).to_contain_text(LOW_IN_WORDS, timeout=LIMIT)
        page.locator(".detail").get_by_role("link", name="s9").click()
        expect(page.locator(".detail")).to_contain_text("switch agree", timeout=LIMIT)


def test_a_host_shows_the_events_that_it_sees(browser: Browser, stack: Stack) -> None:
    # An API process of its own: what is reported here must not count in other tests.
    with stack.serving() as url, looking(browser, url, "network/h4") as page:
        detail = page.locator(".detail")
        expect(detail).to_contain_text("No application on it has reported", timeout=LIMIT)
        counters = {"received": 400, "delivered": 380, "unwanted": 8}
        body = {"host": "h4", "counters": {"stocks": counters}}
        httpx.post(f"{url}/reports", json=body, timeout=60).raise_for_status()
        seen = detail.get_by_role("region", name="Events by space")
        expect(seen).to_contain_text("stocks", timeout=LIMIT)
        expect(seen.locator("tbody td")).to_have_text(["stocks", "0", "400", "380", "8", "2 %"])


def test_a_host_token_sees_its_own_host_at_once(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.guarded_url, "network", refusals=[401]) as page:
        page.get_by_label("Token").fill(stack.tokens["h1"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".detail")).to_contain_text("Host h1", timeout=LIMIT)
        expect(page.locator(".detail")).to_contain_text("Events that it sees", timeout=LIMIT)
        expect(page.get_by_role("button", name="Sign out h1")).to_be_visible()
        page.get_by_role("link", name="Requests").click()
        expect(page.get_by_label("Host", exact=True)).to_have_value("h1")
        page.get_by_role("link", name="Try it").click()
        expect(page.locator("select[name=publisher] option")).to_have_text(["h1"], timeout=LIMIT)


def test_a_link_to_a_host_waits_for_the_topology(browser: Browser, stack: Stack) -> None:
    held: list[Route] = []
    with looking(browser, stack.url, "network/h3") as page:
        expect(page.locator(".detail")).to_contain_text("Host h3", timeout=LIMIT)
        # The page before the reload may ask, too: the last one that is held is of the new page.
        page.route("**/topology", lambda route: held.append(route))
        page.reload()
        expect(page.locator("main")).to_contain_text("Loading the network", timeout=LIMIT)
        expect(page.locator(".detail")).to_be_empty()
        held[-1].fulfill(json=httpx.get(f"{stack.url}/topology", timeout=60).json())
        expect(page.locator(".detail")).to_contain_text("Host h3", timeout=LIMIT)


def test_a_host_token_is_offered_its_own_host_and_refused_others(
    browser: Browser, stack: Stack
) -> None:
    with looking(browser, stack.guarded_url, "network/h3", refusals=[401]) as page:
        page.get_by_label("Token").fill(stack.tokens["h2"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".detail")).to_contain_text("Your token is for host h2", timeout=LIMIT)
        expect(page.get_by_label("Subscriber").locator("option")).to_have_text(["h2"])
        page.get_by_label("Filter").fill("price < 100")
        expect(page.locator("#network-found")).to_contain_text("If h2 subscribed", timeout=LIMIT)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_details_are_accessible_and_fit_a_phone(browser: Browser, low: Stack, theme: str) -> None:
    with looking(browser, low.url, "network/s9", width=390, theme=theme) as page:
        expect(page.locator(".detail")).to_contain_text("switch agree", timeout=LIMIT)
        page.get_by_label("Subscriber").select_option("h8")
        page.get_by_label("Filter").fill("price < 100")
        expect(page.locator("#network-found table")).to_be_visible(timeout=LIMIT)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
