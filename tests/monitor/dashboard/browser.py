"""How Chromium is started, and how a test looks at a page."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Page

# Without these, Chromium asks for hosts of its maker at each start.
OPTIONS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)

LIMIT = 30_000  # milliseconds that anything may take
MARKUP = "<img src=x onerror=\"document.title='caught'\">"


_REFUSED = re.compile(r"Failed to load resource: .* status of (\d+)")


@contextmanager
def looking(
    browser: Browser,
    url: str,
    view: str = "overview",
    *,
    width: int = 1440,
    theme: str = "light",
    refusals: Collection[int] = (),
) -> Iterator[Page]:
    """A page that shows a view. It must not load anything from elsewhere, nor log an error.

    Chromium logs each answer that is an error; those with a status in `refusals` are expected.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(LIMIT)
    wrong: list[str] = []

    def note(said: ConsoleMessage) -> None:
        refused = _REFUSED.match(said.text)
        if said.type == "error" and not (refused and int(refused[1]) in refusals):
            wrong.append(f"{said.text} ({said.location.get('url', '')})")

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", note)
    page.on("request", lambda asked: None if asked.url.startswith(url) else wrong.append(asked.url))
    page.goto(f"{url}/dashboard#/{view}")
    yield page
    page.unroute_all(behavior="ignoreErrors")  # an answer that comes now is too late
    context.close()
    assert not wrong, wrong
