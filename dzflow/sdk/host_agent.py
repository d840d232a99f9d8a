"""What an application runs on its host: it sends and receives events, and stays up to date."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence

from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError
from dzflow.intervals import Key
from dzflow.sdk.errors import CLIENT_CLOSED, FORKED, Closed
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.links import EmulatedLink, Link
from dzflow.sdk.events.receiver import Receiver
from dzflow.sdk.events.sorter import Counters, Sorter
from dzflow.sdk.key_follower import KeyFollower
from dzflow.sdk.renewals import Renewals
from dzflow.sdk.reporter import Reporter
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.space_follower import SpaceFollower
from dzflow.sdk.space_view import SpaceView

_log = logging.getLogger("dzflow.sdk")

JOIN_EVERY = 5.0  # seconds; an emulated host forgets an application after 30
_REPAIR_EVERY = 0.5  # seconds, while the emulated host does not answer


class HostAgent:
    """The link to the network, and the tasks that serve it; `start` and `close` need a loop."""

    def __init__(
        self, rest: AsyncRest, host: str, link: Link, *, find_endpoint: bool, reports: bool
    ) -> None:
        self._rest = rest
        self._host = host
        self._link = link
        self._find_endpoint = find_endpoint  # when an emulated host does not answer any more
        self._ids = datagrams.EventIds()
        self._tasks = BackgroundTasks()
        self._closed = False
        self._process = os.getpid()
        self.sorter = Sorter()
        self.keys = KeyFollower(rest, self.sorter)
        self.spaces = SpaceFollower(rest, self.sorter, self.keys)
        self.receiver = Receiver(rest, host, link, self.sorter, self.spaces, self.keys)
        self.renewals = Renewals(rest)
        self._reporter = Reporter(rest, host, self.counters) if reports else None

    def start(self) -> None:
        """Start the background tasks."""
        self._tasks.spawn(self.spaces.follow(), "change feed of the spaces")
        self._tasks.spawn(self.keys.run(), "keys of tagged spaces")
        self._tasks.spawn(self.receiver.run(), "classification of events")
        if isinstance(self._link, EmulatedLink):
            self._tasks.spawn(self._stay_joined(self._link), "membership of the emulated host")
        if self._reporter:
            self._tasks.spawn(self._reporter.run(), "reports")

    async def close(self) -> None:
        """Stop the background tasks, leave the host, and send the last report."""
        self._closed = True
        await self._tasks.cancel()
        await self.renewals.close()
        self.receiver.close()
        self._link.close()
        if self._reporter:
            await self._reporter.close()

    def send(self, view: SpaceView, keys: Sequence[Key], event: Mapping[str, object]) -> int:
        """Send an event into the network and to the applications of this host; returns its id.

        From any thread.
        """
        if self._closed:
            raise Closed(CLIENT_CLOSED)
        if self._process != os.getpid():  # its ids would be the parent's, too
            raise Closed(FORKED)
        event_id = self._ids.next(view.number, view.version)
        if view.tagged and (signer := self.keys.signer(view.number)):
            payload = signer.encode(event_id, event)
        else:
            payload = datagrams.encode(event_id, event)
        self._link.send(view.address(keys, event_id), payload)
        self._link.copy(datagrams.copy(payload))
        self.sorter.count_published(view.number)
        if self._reporter:
            self._reporter.sample(view.space.name, event)
        return event_id

    def counters(self) -> dict[str, Counters]:
        """The counters of each space in use, by name; from any thread."""
        found = self.sorter.counters()
        views = self.spaces.views()
        return {name: found[v.number] for name, v in views.items() if v.number in found}

    async def _stay_joined(self, link: EmulatedLink) -> None:
        """Repeat JOIN, and find the host's endpoint again after the emulated network restarts."""
        while True:
            await asyncio.sleep(JOIN_EVERY if not link.unanswered else _REPAIR_EVERY)
            if link.unanswered and self._find_endpoint:
                await self._reconnect(link)
            if link.joined:
                try:
                    link.join()
                except (DzflowError, OSError) as error:
                    _log.warning("cannot renew the membership of %s yet: %s", self._host, error)

    async def _reconnect(self, link: EmulatedLink) -> None:
        try:
            for host in await self._rest.hosts():
                if host["id"] == self._host and host.get("wire"):
                    link.connect(host["wire"])
        except (DzflowError, OSError) as error:
            _log.info("cannot find the endpoint of host %s yet: %s", self._host, error)
