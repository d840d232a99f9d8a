"""The newest events of the history, bounded. Pure."""

from bisect import bisect_right
from collections import deque
from itertools import islice

from msgspec.structs import replace

from monitor.history.event import HistoryEvent, HistoryPage

PAGE = 500  # events of a page
_APART = 1e-6  # seconds between two events at least, so that a time names a place in the history


class HistoryRing:
    """The newest events that a process has heard of, at most `size`."""

    def __init__(self, size: int, process: str) -> None:
        self._process = process
        self._events: deque[HistoryEvent] = deque(maxlen=size)
        self._forgotten_until = 0.0

    def add(self, event: HistoryEvent) -> HistoryEvent:
        """Keep an event; returned as it is kept: later than the one before it."""
        events = self._events
        at = max(event.at, events[-1].at + _APART) if events else event.at
        event = replace(event, at=at, process=self._process)
        if len(events) == events.maxlen:
            self._forgotten_until = events[0].at
        events.append(event)
        return event

    def page(self, since: float) -> HistoryPage:
        """The events after a time, in seconds since 1970; the oldest ones if there are many."""
        first = bisect_right(self._events, since, key=lambda event: event.at)
        items = list(islice(self._events, first, first + PAGE))
        more = len(self._events) > first + PAGE
        return HistoryPage(
            self._process,
            items,
            items[-1].at if more else None,
            since >= self._forgotten_until,
        )
