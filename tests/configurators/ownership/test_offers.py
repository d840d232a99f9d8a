"""The open offers of dispatchers, as a configurator sees them."""

import asyncio

from configurators.environment import Clock
from configurators.ownership.offers import OfferBook
from configurators.streams.messages import Offers
from configurators.streams.stream import Stream

NAME = "1.0/all"


class Time:
    now = 100.0

    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now)


def dispatcher() -> Stream:
    stream = Stream.__new__(Stream)
    stream.closed = asyncio.Event()
    return stream


def open_counts(book: OfferBook) -> dict[str, list[int]]:
    return {name: list(offer.counts.values()) for name, offer in book.open()}


def test_an_offer_stands_until_all_dispatchers_have_withdrawn_theirs() -> None:
    book, one, two = OfferBook(Time().clock()), dispatcher(), dispatcher()
    assert not book.update(one, Offers({NAME: 3}))
    assert not book.update(two, Offers({NAME: 5}))
    assert open_counts(book) == {NAME: [3, 5]}
    assert not book.update(one, Offers({NAME: 0}))
    assert book.update(two, Offers({NAME: 0}))
    assert NAME not in book


def test_the_age_of_an_offer_counts_from_when_tasks_were_last_taken() -> None:
    time, one = Time(), dispatcher()
    book = OfferBook(time.clock())
    book.update(one, Offers({NAME: 3}))
    time.now = 101.0
    book.update(one, Offers({NAME: 4}))
    [(_, offer)] = book.open()
    assert offer.since == 100.0
    time.now = 102.0
    book.note_taken(NAME, one, 1)
    assert (offer.since, offer.counts[one]) == (102.0, 3)
    time.now = 103.0
    book.update(one, Offers({NAME: 2}))
    assert offer.since == 103.0


def test_offers_that_were_taken_or_whose_dispatcher_is_gone_are_not_open() -> None:
    book, one, two = OfferBook(Time().clock()), dispatcher(), dispatcher()
    book.update(one, Offers({NAME: 3}))
    book.update(two, Offers({NAME: 3}))
    book.note_taken(NAME, one, 3)
    assert open_counts(book) == {NAME: [3]}
    two.closed.set()
    assert open_counts(book) == {}
    assert NAME not in book
