"""The view "Try it" in a real browser: filters are completed and explained, events are followed."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from dzflow import ControlPlane
from tests.monitor.dashboard.browser import LIMIT, MARKUP, looking
from tests.rest import subscription
from tests.stack import Stack

SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "symbol", "type": "enum", "values": ["ACME", MARKUP]},
    ],
    "index": {"kind": "fields", "budget": 4, "shapes": 16},
}


@pytest.fixture(scope="module")
def space(stack: Stack) -> str:
    """A space whose events h1 publishes, if they cost less than 500; h3 wants cheap ones."""
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        client.put("/spaces/tried", json=SCHEMA).raise_for_status()
        offer = {"host": "h1", "space": "tried", "filter": "price < 500"}
        client.post("/advertise", json=offer).raise_for_status()
        body = subscription("tried", host="h3", filter="price < 250")
        client.post("/subscribe", json=body).raise_for_status()
    return "tried"


@pytest.fixture
def page(browser: Browser, stack: Stack, space: str) -> Iterator[Page]:
    """The view, with the space chosen."""
    with looking(browser, stack.url, "try", refusals=[409, 422]) as page:
        page.locator("[name=space]").select_option(space)
        expect(page.locator("#verdict")).to_contain_text("unwanted", timeout=LIMIT)
        yield page


def test_a_filter_is_completed_by_the_keyboard_and_subscribed_to(page: Page, stack: Stack) -> None:
    field = page.get_by_role("combobox", name="Filter")
    field.press("p")
    expect(page.locator("#completions [role=option]")).to_have_count(1)
    for keys in ("ArrowDown Enter", "ArrowDown Enter"):
        for key in keys.split():
            field.press(key)
    expect(field).to_have_value("price >= ")
    field.press_sequentially("100 and s")
    field.press("ArrowDown")
    active = field.get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_contain_text("enum: ACME")
    field.press("Enter")
    field.press_sequentially("== ")
    expect(page.locator("#completions")).to_contain_text("<img")
    field.press_sequentially('"a')
    field.press("ArrowDown")
    field.press("Enter")
    expect(field).to_have_value('price >= 100 and symbol == "ACME" ')
    field.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    page.locator("[name=host]").select_option("h4")
    expect(page.locator("#verdict")).to_contain_text('symbol == "ACME"', timeout=LIMIT)
    expect(page.locator(".node.switch.changes").first).to_be_visible(timeout=LIMIT)
    expect(page.locator(".link.used").first).to_be_attached(timeout=LIMIT)
    page.get_by_role("button", name="Subscribe", exact=True).click()
    outcome = page.locator(".outcome", has_text="Subscribed: s")
    expect(outcome).to_be_visible(timeout=LIMIT)
    id = outcome.locator("a").inner_text()
    record = httpx.get(f"{stack.url}/subscriptions/{id}", timeout=60).json()
    assert (record["host"], record["state"]) == ("h4", "active")
    assert record["filter"] == 'price >= 100 and symbol == "ACME"'
    httpx.delete(f"{stack.url}/subscriptions/{id}", timeout=60).raise_for_status()


def test_an_error_is_shown_at_its_place(page: Page) -> None:
    field = page.get_by_role("combobox", name="Filter")
    field.fill("price > 3 and colour == 'x'")
    expect(page.locator("#filter-error mark")).to_have_text("colour", timeout=LIMIT)
    expect(page.locator("#filter-error")).to_contain_text("no attribute 'colour'")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Go to the place").click()
    page.keyboard.type("symbol")
    page.keyboard.press("End")
    expect(page.locator("#filter-error mark")).not_to_have_text("colour", timeout=LIMIT)
    field.fill(f"symbol == {json.dumps(MARKUP)}")
    expect(page.locator("#filter-error")).to_be_empty(timeout=LIMIT)
    expect(page.locator("#verdict")).to_contain_text("<img", timeout=LIMIT)
    assert page.locator("main img").count() == 0


def test_an_event_is_followed_hop_by_hop(page: Page) -> None:
    page.locator("[name=price]").fill("200")
    page.locator("[name=symbol]").select_option(MARKUP)
    page.get_by_role("button", name="Follow the event").click()
    expect(page.locator("#said")).to_contain_text("It would reach 1 host in", timeout=LIMIT)
    expect(page.locator(".receivers")).to_contain_text("h3")
    expect(page.locator(".hops li").last).to_contain_text("host h3")
    expect(page.locator(".hops .later")).to_have_count(0, timeout=LIMIT)
    expect(page.locator(".node.host.reached")).to_have_attribute("data-id", "h3", timeout=LIMIT)
    expect(page.locator(".node.host.source")).to_have_attribute("data-id", "h1")
    page.locator("[name=price]").fill("900")
    page.get_by_role("button", name="Follow the event").click()
    expect(page.locator("#said")).to_contain_text("not admitted", timeout=LIMIT)
    expect(page.locator(".hops")).to_contain_text("dropped")
    page.locator("[name=price]").fill("1001")
    page.locator("form", has=page.locator("[name=price]")).evaluate(
        "form => form.noValidate = true"
    )
    page.get_by_role("button", name="Follow the event").click()
    expect(page.locator("[name=price]")).to_have_attribute("aria-invalid", "true", timeout=LIMIT)
    page.get_by_role("button", name="Random event").click()
    expect(page.locator("#said")).to_contain_text("admitted", timeout=LIMIT)
    assert page.locator("main img").count() == 0


def test_an_event_is_published_by_clicking(page: Page, stack: Stack) -> None:
    with (
        ControlPlane(stack.url, host="h5") as control_plane,
        control_plane.subscribe("tried", "price < 400") as events,
    ):
        page.locator("[name=price]").fill("321")
        page.locator("[name=symbol]").select_option("ACME")
        command = page.get_by_role("button", name="copy dzflow").last
        expect(command).to_have_attribute(
            "title", re.compile('dzflow publish --host h1 .*"price":321')
        )
        page.get_by_role("button", name="Publish the event").click()
        received = events.get(timeout=60)
        assert received == {"price": 321, "symbol": "ACME"}
        said = page.locator(".outcome", has_text="Published as h1")
        expect(said).to_contain_text(f"event {received.id}", timeout=LIMIT)
        expect(page.locator("#said")).to_contain_text("It would reach", timeout=LIMIT)
        page.locator("[name=price]").fill("900")
        with page.expect_response("**/publish") as answered:
            page.get_by_role("button", name="Publish the event").click()
        assert answered.value.status == 409
        expect(page.locator(".outcome.error")).to_contain_text(
            "none of the 1 active", timeout=LIMIT
        )


def without_wires(route: Route) -> None:
    """Answer as if no host were emulated."""
    answer = route.fetch()
    found = answer.json()
    for host in found["hosts"]:
        host.pop("wire", None)
    route.fulfill(response=answer, json=found)


def test_a_real_host_is_not_published_for(page: Page) -> None:
    page.route("**/topology", without_wires)
    page.reload()
    expect(page.get_by_role("button", name="Publish the event")).to_be_disabled(timeout=LIMIT)
    expect(page.locator("main")).to_contain_text("is neither emulated nor in the lab")


def test_a_host_of_the_lab_is_published_for_if_the_service_can(page: Page) -> None:
    def with_lab(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "lab": True})

    page.route("**/about", with_lab)
    page.route("**/topology", without_wires)
    page.reload()
    # The command is offered once the page knows the hosts, and that they are published for.
    expect(page.get_by_role("button", name="copy dzflow").last).to_have_attribute(
        "title", re.compile("dzflow publish --host h"), timeout=LIMIT
    )
    expect(page.get_by_role("button", name="Publish the event")).to_be_enabled()


def test_an_event_says_that_not_all_records_were_looked_at(page: Page) -> None:
    def note(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "note": "only 7 were looked at"})

    page.route("**/explain", note)
    page.locator("[name=price]").fill("200")
    page.get_by_role("button", name="Follow the event").click()
    expect(page.locator("#path .note").first).to_have_text("only 7 were looked at", timeout=LIMIT)


def test_a_viewer_who_wants_no_motion_sees_all_hops_at_once(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.locator("[name=price]").fill("200")
    page.get_by_role("button", name="Follow the event").click()
    page.locator(".hops").wait_for()
    assert page.locator(".hops .now, .hops .later").count() == 0
