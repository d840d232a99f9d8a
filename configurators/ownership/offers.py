"""The tasks that dispatchers offer to all configurators (mode `sea`)."""

from collections.abc import Iterator

from configurators.environment import Clock
from configurators.streams.messages import Offers
from configurators.streams.stream import Stream


class Offer:
    """How many tasks each dispatcher offers for one partition."""

    def __init__(self, now: float) -> None:
        self.since = now  # when the offer came, or some of it was last taken
        self.counts: dict[Stream, int] = {}


class OfferBook:
    """The open offers of all partitions, in the order in which they came."""

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
            if count < offer.counts.pop(stream, 0):
                offer.since = now
            if count:
                offer.counts[stream] = count
            elif not offer.counts:
                del self._offers[partition]
                gone = True
        return gone

    def note_taken(self, partition: str, stream: Stream, count: int) -> None:
        """Subtract tasks that came from a dispatcher, which updates its offer only afterwards."""
        offer = self._offers.get(partition)
        if offer and stream in offer.counts:
            offer.since = self._clock.monotonic()
            offer.counts[stream] -= count
            if offer.counts[stream] <= 0:
                del offer.counts[stream]

    def open(self) -> Iterator[tuple[str, Offer]]:
        """The partitions with tasks on offer; offers of dispatchers that are gone are removed."""
        for partition, offer in list(self._offers.items()):
            for stream in [stream for stream in offer.counts if stream.closed.is_set()]:
                del offer.counts[stream]
            if offer.counts:
                yield partition, offer
            else:
                del self._offers[partition]
