"""What applications have reported: sums by space, and by host; bounded. Pure."""

from collections.abc import Mapping

from msgspec import Struct, field

_OTHER = ("other", "other")


class HostReports(Struct):
    """The sums of one host, by space and name of the counter; `last` is that of its last report."""

    totals: dict[tuple[str, str], int] = field(default_factory=dict)
    last: float = 0.0


class Reports:
    """Adds up the counters that applications report.

    At most `most` hosts are known, which have at most `most` sums together, as the service has. To
    make room, the host whose last report is the oldest is forgotten; one that has too many sums
    gets `other`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._totals: dict[tuple[str, str], int] = {}
        self._hosts: dict[str, HostReports] = {}  # the one that has reported last comes last
        self._kept = 0  # sums of all hosts

    def add(
        self, host: str, counters: Mapping[str, Mapping[str, int]], now: float
    ) -> list[tuple[tuple[str, str], int]]:
        """Add a report; returns the sums of the service that have grown, and by how much."""
        known = self._hosts.pop(host, None) or HostReports()
        self._hosts[host] = known
        known.last = now
        if len(self._hosts) > self._most:
            self._forget_oldest()
        grown = []
        for space, counts in counters.items():
            for name, count in counts.items():
                series = (space, name)
                if series not in self._totals and len(self._totals) >= self._most:
                    series = _OTHER
                self._totals[series] = self._totals.get(series, 0) + count
                grown.append((series, count))
                self._add_for_host(known, (space, name), count)
        return grown

    def by_space(self) -> dict[str, dict[str, int]]:
        """The sums of the whole service, by space and name."""
        return _by_space(self._totals)

    def of_host(self, host: str) -> tuple[dict[str, dict[str, int]], float | None]:
        """The sums of a host, by space and name, and when it has reported last."""
        known = self._hosts.get(host)
        return (_by_space(known.totals), known.last) if known else ({}, None)

    def _add_for_host(self, known: HostReports, series: tuple[str, str], count: int) -> None:
        if series not in known.totals:
            while self._kept >= self._most and len(self._hosts) > 1:
                self._forget_oldest()
            if self._kept >= self._most:
                series = _OTHER
        self._kept += series not in known.totals
        known.totals[series] = known.totals.get(series, 0) + count

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._hosts))
        self._kept -= len(self._hosts.pop(oldest).totals)


def _by_space(totals: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (space, name), total in totals.items():
        found.setdefault(space, {})[name] = total
    return found
