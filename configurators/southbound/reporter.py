"""Reports of a southbound process to its peers: its switches, what it has found and counted."""

import asyncio
import logging
from collections.abc import Callable
from time import time

from msgspec.structs import replace

from configurators.southbound.counts import SouthboundCounts
from configurators.streams.messages import (
    FoundHosts,
    FoundNetwork,
    SouthboundCounters,
    SwitchReport,
)
from configurators.streams.stream import Stream, StreamClosed
from dzflow.aio import OncePerTurn, wait_until_set
from sdn.driver import SwitchDriver
from sdn.network.findings import SeenHost
from sdn.network.topology import Link

log = logging.getLogger(__name__)


_COUNTERS_EVERY = 1.0  # seconds
_FOUND_EVERY = 0.1  # seconds between two reports of what was found, at least
_FOUND_AGAIN = 2.0  # seconds until it is looked again what was found
_HOSTS_EVERY = 0.2  # seconds between two reports of hosts, at least
_PAUSE_PER_HOST = 0.002  # seconds that each of them adds, so that strangers cannot cause much work


class Reporter:
    """Sends a `SwitchReport` to every stream when it opens, and to all of them on each change.

    `run` sends the counters that have changed, too; they change all the time.
    """

    def __init__(
        self,
        southbound: str,
        driver: SwitchDriver,
        network: int,
        spaces: int,
        counts: SouthboundCounts | None = None,
        wall: Callable[[], float] = time,
    ) -> None:
        self.network = network  # the revision of the network that the driver has
        self.spaces = spaces  # the revision up to which spaces are known
        self.cleaned = spaces  # the same, with nothing left of maps that were changed before
        self._southbound = southbound
        self._driver = driver
        self._counts = counts or SouthboundCounts(southbound)
        self._streams: dict[Stream, None] = {}  # those that are open, and some that have closed
        self._silent: set[tuple[str, int]] = set()  # ends of links that carry no probes
        self._sent: SwitchReport | None = None
        self._sending = OncePerTurn(self.send)
        self._found = asyncio.Event()
        self._hosts_changed = asyncio.Event()
        # From the clock of the driver to that of the wall, the same for all reports.
        self._wall_offset = wall() - asyncio.get_running_loop().time()

    def add(self, stream: Stream) -> None:
        """Send the current report to a stream that has just opened, and later ones, too."""
        for known in [known for known in self._streams if known.closed.is_set()]:
            del self._streams[known]
        self._streams[stream] = None
        self._send(stream, self._report())
        if self._driver.found().active:
            self._send(stream, self._findings())
        if hosts := self._hosts():
            self._send(stream, hosts)
        self._send(stream, self._counters())

    async def run(self) -> None:
        """Send the counters regularly if they have changed, until cancelled."""
        sent: SouthboundCounters | None = None
        while True:
            counters = self._counters()
            if counters != sent:
                sent = counters
                for stream in list(self._streams):
                    self._send(stream, counters)
            await asyncio.sleep(_COUNTERS_EVERY)

    def found(self) -> None:
        """Report soon what discovery has found: that has changed."""
        self._found.set()

    def hosts_changed(self) -> None:
        """Report soon which hosts were heard: that may have changed."""
        self._hosts_changed.set()

    async def run_findings(self) -> None:
        """Send what discovery has found whenever it has changed, until cancelled."""
        sent: FoundNetwork | None = None
        while self._driver.found().active:
            # Some findings end without an event: they are not confirmed any more.
            await wait_until_set(self._found, _FOUND_AGAIN)
            self._found.clear()
            findings = self._findings()
            if findings != sent:
                sent = findings
                for stream in list(self._streams):
                    self._send(stream, findings)
            await asyncio.sleep(_FOUND_EVERY)
        await asyncio.Event().wait()

    async def run_hosts(self) -> None:
        """Send which hosts were heard whenever that has changed, until cancelled."""
        sent: FoundHosts | None = None
        while self._driver.found().active:
            # That a host is declared, or its port is down, is no event of discovery.
            await wait_until_set(self._hosts_changed, _FOUND_AGAIN)
            self._hosts_changed.clear()
            hosts = self._hosts()
            if hosts != sent and (hosts or sent):
                sent = hosts or FoundHosts(self._southbound, ())
                for stream in list(self._streams):
                    self._send(stream, sent)
            await asyncio.sleep(_HOSTS_EVERY + _PAUSE_PER_HOST * len(sent.hosts if sent else ()))
        await asyncio.Event().wait()

    def schedule(self) -> None:
        """Send a report in the next turn of the loop, if anything has changed."""
        self._sending.schedule()

    def send(self) -> None:
        """Send a report to all streams now, if anything has changed."""
        report = self._report()
        if report != self._sent:
            self._sent = report
            for stream in list(self._streams):
                self._send(stream, report)

    def link_changed(self, link: Link, up: bool) -> None:
        """Report the ports of a link that was found, or no longer carries probes."""
        if up:
            self._silent.difference_update(link.ends)
        else:
            self._silent.update(link.ends)

    def _report(self) -> SwitchReport:
        up = self._driver.up()
        return SwitchReport(
            self._southbound,
            sorted(up),
            self._driver.down(),
            self.network,
            sorted(self._driver.ports_down()),
            self.spaces,
            self._driver.refusing(),
            self.cleaned,
            sorted(end for end in self._silent if end[0] in up),
        )

    def _findings(self) -> FoundNetwork:
        found = self._driver.found()
        return FoundNetwork(
            self._southbound,
            found.strangers,
            found.links,
            tuple(found.crossed.items()),
            found.refused,
            found.absent,
        )

    def _hosts(self) -> FoundHosts | None:
        """The hosts that were heard; None if there is none."""
        seen = self._driver.found().hosts
        hosts = (SeenHost(one.host, one.since + self._wall_offset) for one in seen)
        return FoundHosts(self._southbound, tuple(hosts)) if seen else None

    def _counters(self) -> SouthboundCounters:
        return replace(self._counts.current(), tables=self._driver.table_use())

    def _send(
        self, stream: Stream, report: SwitchReport | FoundNetwork | FoundHosts | SouthboundCounters
    ) -> None:
        try:
            stream.tell(report)
        except StreamClosed as error:
            self._streams.pop(stream, None)
            log.info("no report is sent to %s any more: %s", stream.peer, error)
