"""The tasks that dispatchers offer to configurators (mode `sea`)."""

from collections.abc import Iterator

from configurators.environment import Clock
from configurators.streams.messages import Offers
from configurators.streams.stream import Stream

_SAME = 0.005  # seconds by which messages are late differ: not enough to tell tasks apart


class Offer:
    """How many tasks each dispatcher offers for one partition."""

    def __init__(self, now: float) -> None:
        self.counts: dict[Stream, int] = {}
        self.taken = now  # when tasks were last taken, or the offer came
        self._since: dict[Stream, float] = {}

    @property
    def since(self) -> float:
        """Since when the oldest task waits."""
        return min(self._since.values())

    def put(self, stream: Stream, count: int, since: float | None, now: float) -> None:
        """Replace what a dispatcher offers; `since` is None if it does not say."""
        before = self._since.get(stream)
        if count < self.counts.get(stream, 0) or (before and since and since > before + _SAME):
            self.taken = now
        self.counts[stream] = count
        if since is not None or before is None:
            self._since[stream] = now if since is None else since

    def remove(self, stream: Stream) -> None:
        """Remove what a dispatcher offers."""
        self.counts.pop(stream, None)
        self._since.pop(stream, None)


class OfferBook:
    """The open offers of all partitions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offers: dict[str, Offer] = {}

    def __contains__(self, partition: str) -> bool:
        return partition in self._offers

    def update(self, stream: Stream, message: Offers) -> bool:
        """Note what a dispatcher offers now; whether some partition is no longer offered."""
        now = self._clock.monotonic()
        gone = False
        for partition, count in message.counts.items():
            offer = self._offers.setdefault(partition, Offer(now))
            waits = message.waits.get(partition)
            if count:
                offer.put(stream, count, None if waits is None else now - waits, now)
                continue
            offer.remove(stream)
            if not offer.counts:
                del self._offers[partition]
                gone = True
        return gone

    def note_taken(self, partition: str, stream: Stream, count: int) -> None:
        """Subtract tasks that came from a dispatcher, which updates its offer only afterwards."""
        offer = self._offers.get(partition)
        if offer and stream in offer.counts:
            left = offer.counts[stream] - count
            offer.remove(stream)
            if left > 0:
                # The oldest are taken; how long the others have waited is not known yet.
                now = offer.taken = self._clock.monotonic()
                offer.put(stream, left, now, now)
            elif not offer.counts:
                del self._offers[partition]

    def open(self) -> Iterator[tuple[str, Offer]]:
        """The partitions with tasks on offer, the one that has waited longest first.

        Offers of dispatchers that are gone are removed.
        """
        for partition, offer in list(self._offers.items()):
            for stream in [stream for stream in offer.counts if stream.closed.is_set()]:
                offer.remove(stream)
            if not offer.counts:
                del self._offers[partition]
        yield from sorted(self._offers.items(), key=lambda item: item[1].since)
