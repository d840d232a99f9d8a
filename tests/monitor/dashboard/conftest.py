"""A control plane and a browser that looks at it."""

import shutil
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.etcd import TestEtcd
from tests.monitor.dashboard.browser import LIMIT, OPTIONS
from tests.rest import SCHEMA, advertisement, subscription
from tests.stack import Stack, StackOptions


# Playwright keeps an event loop running in this thread. It must have ended before an async test of
# another module starts.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium; as root on Debian, `make browser` installs it")
    expect.set_options(timeout=LIMIT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane with ten switches, two configurators, a space and some records."""
    options = StackOptions(topology="fat-tree:10", configurators=2)
    with (
        Stack(etcd_server.access(), options) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        client.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        client.post("/advertise", json=[advertisement("stocks")]).raise_for_status()
        client.post("/subscribe", json=[subscription("stocks")]).raise_for_status()
        yield running
