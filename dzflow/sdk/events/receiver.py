"""Receives the host's events, and finds out about those that match no subscription here."""

import asyncio
import logging
import time

from dzflow.errors import DzflowError
from dzflow.sdk.errors import Unreachable
from dzflow.sdk.events.links import Link
from dzflow.sdk.events.sorter import Sorter
from dzflow.sdk.key_follower import KeyFollower
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.space_follower import SpaceFollower
from dzflow.sdk.space_view import Expression

_log = logging.getLogger("dzflow.sdk")

_FILTERS_FOR = 5.0  # seconds for which the filters of the host's other applications are cached
_MOST_FILTERS = 1_000  # of the host; with more, events are not classified
_JOIN_AGAIN = 0.01  # seconds between two attempts to join
_BATCH = 0.1  # seconds between two classifications, so that many events cost one call
_LEARN_EVERY = 1.0  # seconds; anyone can make up events of a version that does not exist


class Receiver:
    """Passes datagrams from the link to the sorter."""

    def __init__(
        self,
        rest: AsyncRest,
        host: str,
        link: Link,
        sorter: Sorter,
        spaces: SpaceFollower,
        keys: KeyFollower,
    ) -> None:
        self._rest = rest
        self._host = host
        self._link = link
        self._sorter = sorter
        self._spaces = spaces
        self._keys = keys
        self._learn_at = 0.0
        self._unfinished = asyncio.Event()  # set when the sorter lacks information
        self._filters: dict[int, list[Expression]] | None = None  # of the host, by space
        self._filters_until = 0.0
        self._known: dict[str, Expression] = {}  # by record

    async def join(self, timeout: float) -> None:
        """Begin to receive the host's events; Unreachable if that fails within `timeout`."""
        if self._link.joined:
            return
        try:
            async with asyncio.timeout(timeout):
                while not self._link.joined:
                    self._link.join()
                    if not self._link.joined:
                        # The answer is awaited here, so that the caller gets an error in it.
                        await asyncio.sleep(_JOIN_AGAIN)
                        self._receive()
        except TimeoutError:
            text = f"host {self._host} did not accept the application within {timeout:g} s"
            raise Unreachable(f"{text}; is the emulated network running?") from None
        asyncio.get_running_loop().add_reader(self._link.fileno(), self._on_readable)

    def close(self) -> None:
        """Receive no more events."""
        asyncio.get_running_loop().remove_reader(self._link.fileno())

    async def run(self) -> None:
        """Get the information that the sorter lacks, for ever.

        That is: unannounced versions of spaces, new keys and advertisements of spaces that ask for
        tags, and the filters of the host's other applications.
        """
        while True:
            await self._unfinished.wait()
            self._unfinished.clear()
            sorter = self._sorter
            # Events that arrive while an answer is on its way may be newer than that answer.
            unverified = len(sorter.unverified)
            learn = bool(sorter.unknown_version) and time.monotonic() >= self._learn_at
            unknown = len(sorter.unknown_version) if learn else 0
            try:
                if learn:
                    self._learn_at = time.monotonic() + _LEARN_EVERY
                    await self._spaces.learn_new_versions()
                if unverified:
                    await self._keys.read_again({each.datagram.space for each in sorter.unverified})
                if sorter.unmatched and time.monotonic() > self._filters_until:
                    self._filters = await self._read_filters()
                    self._filters_until = time.monotonic() + _FILTERS_FOR
            except (DzflowError, OSError) as error:
                _log.info("cannot classify some events: %s", error)
            sorter.sort_unknown_versions(unknown)
            sorter.sort_unverified(unverified)
            sorter.classify(self._filters)
            await asyncio.sleep(_BATCH)
            if sorter.unknown_version or sorter.unverified:
                self._unfinished.set()

    def _on_readable(self) -> None:
        try:
            self._receive()
        except DzflowError as error:
            _log.warning("%s", error)

    def _receive(self) -> None:
        now = time.time()
        for payload in self._link.receive():
            self._sorter.sort(payload, now)
        sorter = self._sorter
        if sorter.unmatched or sorter.unknown_version or sorter.unverified:
            self._unfinished.set()

    async def _read_filters(self) -> dict[int, list[Expression]] | None:
        """All filters of the host by number of the space; None if there are too many."""
        page = await self._rest.get("/subscriptions", host=self._host, limit=_MOST_FILTERS)
        if page.get("next") is not None:
            return None
        views = self._spaces.views()
        known, self._known = self._known, {}
        found: dict[int, list[Expression]] = {}
        for record in page["items"]:
            if (view := views.get(record["space"])) is None:
                continue
            expression = known.get(record["id"])
            if expression is None or expression.source != record["filter"]:
                expression = Expression(record["filter"])
            self._known[record["id"]] = expression
            found.setdefault(view.number, []).append(expression)
        return found
