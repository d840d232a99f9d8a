"""Hosts that were heard, in a real browser: listed as they come, accepted, renamed and rejected."""

from collections.abc import Iterator

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect

from sdn.openflow.protocol.messages import Port
from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import LIMIT, looking
from tests.sdn.openflow.cables import advertisement
from tests.stack import Stack, StackOptions
from tests.support import until_sync


@pytest.fixture(scope="module")
def learning(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane that learns hosts; h1 to h3 are declared."""
    with Stack(etcd_server.access(), StackOptions(hosts="propose")) as running:
        yield running


def speak(stack: Stack, number: int, port: int, address: str = "") -> str:
    """Have a host announce itself at a port of s1, until it is proposed; its id."""
    id, mac = f"host-0200000000{number:02x}", f"02:00:00:00:00:{number:02x}"

    async def announce() -> None:
        there = stack.network.switches["s1"]
        if all(one.number != port for one in there.ports):
            there.add_port(Port(port, f"p{port}", f"02:aa:00:00:00:{port:02x}", up=True))
        there.receive(advertisement(mac, address or f"fd00::d:{number:x}"), port)

    def heard() -> bool:
        stack.run(announce())
        return any(one["id"] == id for one in proposals(stack))

    until_sync(heard)
    return id


def proposals(stack: Stack) -> list[dict[str, str]]:
    items: list[dict[str, str]] = httpx.get(f"{stack.url}/host-proposals", timeout=60).json()[
        "items"
    ]
    return items


def test_hosts_are_accepted_under_an_id_of_choice_or_rejected(
    browser: Browser, learning: Stack
) -> None:
    first = speak(learning, 1, 40)
    with looking(browser, learning.url, "network") as page:
        card = page.locator("#host-proposals")
        expect(card).to_contain_text(first, timeout=LIMIT)
        second = speak(learning, 2, 41)  # it is listed as it comes
        expect(card).to_contain_text(second, timeout=LIMIT)
        page.get_by_label(f"Id of {first}").fill("porter")
        row = card.locator("li", has_text=first)
        expect(row.get_by_role("button", name="copy dzflow")).to_have_attribute(
            "title", f"dzflow hosts accept {first} --name 'porter'"
        )
        # What comes meanwhile leaves alone what is being typed.
        third = speak(learning, 3, 42)
        expect(card).to_contain_text(third, timeout=LIMIT)
        expect(page.get_by_label(f"Id of {first}")).to_have_value("porter")
        expect(page.get_by_label(f"Id of {first}")).to_be_focused()
        row.get_by_role("button", name="Accept").click()
        expect(card.get_by_role("status")).to_contain_text("as porter: done", timeout=LIMIT)
        expect(card.locator("ul")).not_to_contain_text(first)
        expect(page.get_by_role("button", name="host porter")).to_be_visible(timeout=LIMIT)
        row = card.locator("li", has_text=second)
        row.get_by_role("button", name="Reject").click()
        expect(row.locator(".pill")).to_have_text("rejected", timeout=LIMIT)
        expect(row.get_by_role("button", name="Reject")).to_have_count(0)
        row.get_by_role("button", name="Accept").click()
        expect(page.get_by_role("button", name=f"host {second}")).to_be_visible(timeout=LIMIT)
        card.locator("li", has_text=third).get_by_role("button", name="Reject").click()
        expect(card.locator(".pill.idle")).to_have_count(1, timeout=LIMIT)


def test_all_hosts_without_doubt_are_accepted_at_once(browser: Browser, learning: Stack) -> None:
    sound = [speak(learning, number, 60 + number) for number in (11, 12)]
    doubtful = [speak(learning, number, 63) for number in (13, 14)]
    with looking(browser, learning.url, "network") as page:
        page.get_by_role("button", name="Accept all 2 without doubt").click()
        for id in sound:
            expect(page.get_by_role("button", name=f"host {id}")).to_be_visible(timeout=LIMIT)
        for id in doubtful:
            row = page.locator("#host-proposals li", has_text=id)
            expect(row).to_contain_text("2 hosts are heard at this port")


def test_a_host_that_cannot_join_says_why(browser: Browser, learning: Stack) -> None:
    id = speak(learning, 7, 47)
    real = {"switch": "s2", "port": 50, "mac": "02:00:00:00:00:07"}
    httpx.put(f"{learning.url}/hosts/real", json=real, timeout=60).raise_for_status()
    with looking(browser, learning.url, "network") as page:
        row = page.locator("#host-proposals li", has_text=id)
        speak(learning, 7, 47)
        expect(row.locator(".pill.bad")).to_have_text("cannot join", timeout=LIMIT)
        expect(row).to_contain_text("it has the MAC of host real")
        expect(row.get_by_role("button", name="Accept")).to_have_count(0)


def test_where_hosts_are_declared_only_nothing_of_it_is_shown(
    browser: Browser, stack: Stack
) -> None:
    with looking(browser, stack.url, "network") as page:
        expect(page.locator("main")).to_contain_text("switches up", timeout=LIMIT)
        expect(page.locator("#host-proposals")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_is_accessible_and_fits_a_phone(
    browser: Browser, learning: Stack, theme: str
) -> None:
    id = speak(learning, 9, 49)
    with looking(browser, learning.url, "network", width=390, theme=theme) as page:
        expect(page.locator("#host-proposals")).to_contain_text(id, timeout=LIMIT)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
