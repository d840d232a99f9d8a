"""Makes the pictures of the dashboard in the documentation: `make screenshots`.

It runs a control plane with 102 switches, lets hosts subscribe and unsubscribe for some seconds,
and takes a picture of each view that the documentation shows.
"""

import random
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from playwright.sync_api import sync_playwright

from configurators.store.server.server import EtcdServer
from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import OPTIONS
from tests.stack import Stack, StackOptions

_DOCS = Path(__file__).parents[3] / "docs"
_SECONDS = 30.0
_SYMBOLS = ["ACME", "BOLT", "CORK", "DUNE"]
_SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 100_000},
        {"name": "symbol", "type": "enum", "values": _SYMBOLS},
    ]
}


def main() -> None:
    """Take all pictures."""
    options = StackOptions(topology="fat-tree:102", configurators=2, partitions=12)
    with (
        TemporaryDirectory(prefix="dzflow-screenshots-") as folder,
        EtcdServer(Path(folder), fsync=False) as server,
        Stack(TestEtcd(server).access(), options) as stack,
    ):
        _make_traffic(stack.url)
        _take(stack.url, "network", "dashboard.png")


def _make_traffic(url: str) -> None:
    """Subscribe and unsubscribe, around a few hot prices."""
    chance = random.Random(1)
    with httpx.Client(base_url=url, timeout=60) as client:
        client.put("/spaces/stocks", json=_SCHEMA).raise_for_status()
        publishers = [{"host": f"h{n}", "space": "stocks", "filter": {}} for n in range(1, 9)]
        client.post("/advertise", json=publishers).raise_for_status()
        known: list[str] = []
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
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


def _take(url: str, view: str, name: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.goto(f"{url}/dashboard#/{view}")
        page.get_by_label("Show").select_option("tree 0")
        page.locator(".link.used").first.wait_for()
        page.screenshot(path=_DOCS / name)
        browser.close()


if __name__ == "__main__":
    main()
