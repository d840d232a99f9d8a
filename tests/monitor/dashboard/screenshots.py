"""Makes the pictures of the dashboard in the documentation: `make screenshots`.

It runs a control plane with 102 switches, lets hosts subscribe and unsubscribe all the time, moves
a partition, and takes pictures of some views. `--all FOLDER` also takes pictures of all views at
three widths, light and dark, to look at them after a change.
"""

import argparse
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from configurators.store.server.server import EtcdServer
from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import OPTIONS
from tests.stack import Stack, StackOptions

_DOCS = Path(__file__).parents[3] / "docs"
_SECONDS = 30.0  # of traffic before the first picture
_PAUSE = 0.1  # seconds between two batches
_SETTLE = 2_500  # milliseconds in which changes come by the stream, and hops are played
_SYMBOLS = ["ACME", "BOLT", "CORK", "DUNE"]
_SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 100_000},
        {"name": "symbol", "type": "enum", "values": _SYMBOLS},
    ]
}
_WIDTHS = {1440: 900, 1024: 768, 390: 844}  # and heights
_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, help="a folder for pictures at all widths")
    given = parser.parse_args()
    options = StackOptions(topology="fat-tree:102", configurators=2, partitions=12)
    with (
        TemporaryDirectory(prefix="dzflow-screenshots-") as folder,
        EtcdServer(Path(folder), fsync=False) as server,
        Stack(TestEtcd(server).access(), options) as stack,
        sync_playwright() as playwright,
        _traffic(stack.url),
    ):
        time.sleep(_SECONDS)
        _move_one(stack.url)
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        for view, name in _SHOWN.items():
            _take(browser, stack.url, view, _VIEWS[view], _DOCS / name, 1440, 810)
        if given.all:
            given.all.mkdir(parents=True, exist_ok=True)
            for view, ready in _VIEWS.items():
                for width, height in _WIDTHS.items():
                    for theme in _THEMES:
                        to = given.all / f"{view.replace('/', '-')}-{width}-{theme}.png"
                        _take(browser, stack.url, view, ready, to, width, height, theme)
        browser.close()


def _show_tree(page: Page) -> None:
    page.get_by_label("Show").select_option(label="tree 0")
    page.locator(".link.used").first.wait_for()


def _follow_event(page: Page) -> None:
    page.get_by_role("combobox", name="Filter").fill('price > 420 and symbol == "ACME"')
    page.get_by_text("unwanted").first.wait_for()
    page.get_by_role("button", name="Follow").click()
    page.locator(".hops li").first.wait_for()


def _see_details(page: Page) -> None:
    page.locator(".detail table").first.wait_for()


def _nothing(page: Page) -> None:
    page.locator("#status").get_by_text("ready").wait_for()


_VIEWS: dict[str, Callable[[Page], None]] = {
    "overview": _nothing,
    "network": _show_tree,
    "network/s7": _see_details,
    "network/h5": _see_details,
    "event-space": _nothing,
    "workers": _nothing,
    "requests": _nothing,
    "try": _follow_event,
    "spaces": _nothing,
    "settings": _nothing,
}
"""Views, and what is done before the picture is taken."""

_SHOWN = {
    "network": "dashboard.png",
    "overview": "dashboard-overview.png",
    "event-space": "dashboard-event-space.png",
    "try": "dashboard-try.png",
}
"""Views whose pictures are in the documentation."""


@contextmanager
def _traffic(url: str) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=_make_traffic, args=(url, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _make_traffic(url: str, ended: threading.Event) -> None:
    """Subscribe and unsubscribe around a few hot prices, and report events, until the end."""
    chance = random.Random(1)
    with httpx.Client(base_url=url, timeout=60) as client:
        client.put("/spaces/stocks", json=_SCHEMA).raise_for_status()
        publishers = [{"host": f"h{n}", "space": "stocks", "filter": {}} for n in range(1, 9)]
        client.post("/advertise", json=publishers).raise_for_status()
        known: list[str] = []
        while not ended.wait(_PAUSE):
            wanted = [
                {
                    "host": f"h{chance.randint(1, 64)}",
                    "space": "stocks",
                    "filter": f'price >= {chance.choice((120, 420, 700))} and symbol == "{name}"'
                    f" and volume < {chance.randint(1, 99)}000",
                }
                for name in _SYMBOLS
            ]
            known += [one["id"] for one in client.post("/subscribe", json=wanted).json()]
            if len(known) > 200:
                client.post("/unsubscribe", json=[{"id": known.pop(0)} for _ in wanted])
            received = chance.randint(300, 400)
            counters = {"received": received, "delivered": received, "unwanted": received // 14}
            report = {"host": f"h{chance.randint(1, 64)}", "counters": {"stocks": counters}}
            client.post("/reports", json=report)


def _move_one(url: str) -> None:
    """Move a partition, so that there is a history."""
    with httpx.Client(base_url=url, timeout=60) as client:
        one = client.get("/partitions").json()["items"][0]
        others = [each["id"] for each in client.get("/configurators").json()["items"]]
        target = next(name for name in others if name != one["configurator"])
        path = f"/partitions/{one['id'].replace('/', '%2F')}/migrate"
        client.post(path, json={"to": target}).raise_for_status()


def _take(
    browser: Browser,
    url: str,
    view: str,
    ready: Callable[[Page], None],
    to: Path,
    width: int,
    height: int,
    theme: Literal["light", "dark"] = "light",
) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{url}/dashboard#/{view}")
    page.locator("main h1").wait_for()
    ready(page)
    page.wait_for_timeout(_SETTLE)
    page.evaluate("scrollTo(0, 0)")  # a click may have scrolled
    page.screenshot(path=to, full_page="/" in view)  # details are below the map
    context.close()


if __name__ == "__main__":
    main()
