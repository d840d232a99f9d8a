"""The network view tells where the cables are not as the topology file says, and where to look."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect

from sdn.emulator.network import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Link, Switch, Topology
from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import LIMIT, looking
from tests.stack import Stack, StackOptions
from tests.stack_switches import switches_of

RING = topology("ring:4")
MISSING, CROSSED, WRONG = RING.links[:3]
CABLED = Topology.build(
    [*RING.switches, Switch("stranger", 77)],
    [
        *RING.links[3:],
        MISSING,  # which lets nothing through
        Link(CROSSED.a, CROSSED.a_port, WRONG.b, WRONG.b_port),
        Link("s2", 9, "stranger", 1),
    ],
    [host for host in RING.hosts if host.id != "h4"],
    partial=True,
)


def break_one(network: EmulatedNetwork) -> None:
    network.hide(MISSING)


@pytest.fixture(scope="module")
def miswired(etcd_server: TestEtcd) -> Iterator[Stack]:
    options = StackOptions(topology="ring:4", openflow="127.0.0.1:0", described=True)
    with (
        Stack(etcd_server.access(), options) as stack,
        switches_of(stack, CABLED, break_one),
    ):
        yield stack


def test_wrong_cables_are_listed_and_marked(browser: Browser, miswired: Stack) -> None:
    with looking(browser, miswired.url, "network") as page:
        listed = page.locator("#network-differences li")
        for kind, text in (
            ("missing cable", f"no cable is found between s1:{MISSING.a_port}"),
            ("crossed cable", f"a cable joins {CROSSED.a}:{CROSSED.a_port} and {WRONG.b}:"),
            ("no such port", "switch s4 has no port 3: host h4 is declared at s4:3"),
            ("refused switch", "0x4d was refused"),
        ):
            expect(listed.filter(has_text=text)).to_contain_text(kind, timeout=LIMIT)
        expect(page.locator("main")).to_contain_text(f"{listed.count()} differences")
        expect(page.locator("svg .link.differs")).not_to_have_count(0)
        expect(page.locator('.node.host.differs[data-id="h4"]')).to_have_count(1)
        listed.get_by_role("link", name="s4").first.click()
        expect(page.locator(".detail")).to_contain_text("Switch s4", timeout=LIMIT)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_differences_are_accessible_and_fit_a_phone(
    browser: Browser, miswired: Stack, theme: str
) -> None:
    with looking(browser, miswired.url, "network", width=390, theme=theme) as page:
        expect(page.locator("#network-differences ul")).to_be_visible(timeout=LIMIT)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []


def test_a_network_as_it_should_be_has_none(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url, "network") as page:
        expect(page.locator("main")).to_contain_text("links up", timeout=LIMIT)
        expect(page.locator("#network-differences")).to_be_empty()
