"""What the page does with live data, whatever the view: it bounds it, and notices when it ends."""

import json
from itertools import count

import httpx
from playwright.sync_api import Browser, Route, expect

from tests.monitor.dashboard.browser import looking
from tests.rest import subscription
from tests.stack import Stack

MERGE = """async () => {
  const { merged } = await import("/dashboard/assets/js/live.js");
  const of = (process, ...times) => times.map((at) => ({ process, at }));
  const many = of("one", ...Array(1500).keys());
  return [
    merged(of("one", 1, 3), of("one", 2, 3), 0),
    merged(of("one", 1, 3), of("two", 2), 0),
    merged(of("one", 1, 3), of("one", 4), 2),
    merged([], many, -1).map((one) => one.at).filter((at, place) => place % 999 === 0),
  ];
}"""

SILENT = """async () => {
  const { changes } = await import("/dashboard/assets/js/api.js");
  const ended = new Promise((tell) => { window.ended = tell; });
  const fetch = window.fetch;
  window.fetch = async (path, { signal }) => new Response(new ReadableStream({
    start: (stream) => signal.addEventListener("abort", () => stream.error(signal.reason)),
  }));
  const first = changes(["record"], new AbortController().signal).next();
  first.catch((error) => window.ended(error.message));
  await new Promise((wake) => queueMicrotask(wake));
  window.fetch = fetch;
  window.outcome = ended;
}"""

MARKS = """async () => {
  const { timeLine } = await import("/dashboard/assets/js/time_line.js");
  const events = [...Array(310).keys()].map((at) => ({
    at, kind: "leader", action: "leads", text: `event ${at}`, workers: ["d"],
    seconds: null, cause: "",
  }));
  const [drawing, note] = timeLine(events, [], 1000, 800, 400);
  const marks = [...drawing.querySelectorAll(".happened")];
  return [marks.length, marks[0].getAttribute("aria-label"), note.textContent];
}"""


def test_the_history_is_that_of_one_process_without_repetitions_and_bounded(
    browser: Browser, stack: Stack
) -> None:
    with looking(browser, stack.url) as page:
        joined, other, late, many = page.evaluate(MERGE)
    assert [one["at"] for one in joined] == [1, 2, 3]
    assert other == [{"process": "two", "at": 2}]
    assert [one["at"] for one in late] == [3, 4]
    assert many == [500, 1499]


def test_the_time_line_draws_the_newest_and_says_so(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url) as page:
        marks, oldest, note = page.evaluate(MARKS)
    assert marks == 300
    assert "event 10" in oldest
    assert note == "The newest 300 of 310 events are drawn."


def test_a_stream_without_keep_alives_ends(browser: Browser, stack: Stack) -> None:
    with looking(browser, stack.url, "settings") as page:
        page.clock.install()
        page.evaluate(SILENT)
        page.clock.fast_forward(46_000)
        assert page.evaluate("window.outcome") == "the stream is silent"


def test_sums_of_different_processes_make_no_rate(browser: Browser, stack: Stack) -> None:
    calls = count(1)

    def answer(route: Route) -> None:
        made = next(calls)
        items = [{"space": "stocks", "counters": {"received": 1000 * made}}]
        route.fulfill(body=json.dumps({"process": f"d-{made % 2}", "items": items}))

    with looking(browser, stack.url, "settings") as page:
        page.route("**/reports", answer)
        page.get_by_role("link", name="Overview").click()
        seen = page.locator(".figure", has_text="Events seen")
        expect(seen).to_contain_text("2,000 reported")
        expect(seen.locator("strong")).to_have_text("–")


def test_the_log_keeps_its_place_and_the_focus(browser: Browser, stack: Stack) -> None:
    def subscribe(*filters: str) -> list[str]:
        bodies = [subscription("stocks", filter=one) for one in filters]
        made = httpx.post(f"{stack.url}/subscribe", json=bodies, timeout=60).json()
        return [one["id"] for one in made]

    with looking(browser, stack.url, "requests", width=390) as page:
        with page.expect_response(lambda answer: "types=record" in answer.url):
            page.reload()
        [first] = subscribe("price > 901")
        link = page.locator("section", has_text="Live log").get_by_role("link", name=first).first
        expect(link).to_be_visible()
        link.focus()
        log = page.locator('[data-id="log"]')
        log.evaluate("one => one.scrollTo(120, 0)")
        [second] = subscribe("price > 902")
        expect(log).to_contain_text(second)
        expect(link).to_be_focused()
        assert log.evaluate("one => one.scrollLeft") == 120
        page.mouse.down(button="right")  # only the main button, held down, stops updates
        [third] = subscribe("price > 903")
        expect(log).to_contain_text(third)
    ids = [{"id": one} for one in (first, second, third)]
    httpx.post(f"{stack.url}/unsubscribe", json=ids, timeout=60).raise_for_status()
