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


def test_the_oldest_task_of_any_dispatcher_says_since_when_a_partition_waits() -> None:
    time, one, two = Time(), dispatcher(), dispatcher()
    book = OfferBook(time.clock())
    book.update(one, Offers({NAME: 3}, {NAME: 1.0}))
    book.update(two, Offers({NAME: 1}, {NAME: 4.0}))
    [(_, offer)] = book.open()
    assert offer.since == 96.0
    book.update(two, Offers({NAME: 0}))
    assert offer.since == 99.0
    time.now = 101.0
    book.update(one, Offers({NAME: 4}))  # it does not say, so nothing was taken
    assert offer.since == 99.0
    book.note_taken(NAME, one, 1)
    assert (offer.since, offer.counts[one]) == (101.0, 3)
    book.update(one, Offers({NAME: 3}, {NAME: 1.5}))
    assert offer.since == 99.5


def test_it_is_known_when_tasks_were_last_taken() -> None:
    time, one = Time(), dispatcher()
    book = OfferBook(time.clock())
    book.update(one, Offers({NAME: 3}, {NAME: 1.0}))
    [(_, offer)] = book.open()
    time.now = 101.0
    book.update(one, Offers({NAME: 5}, {NAME: 2.0}))  # the oldest is still the same
    assert offer.taken == 100.0
    time.now = 102.0
    book.update(one, Offers({NAME: 6}, {NAME: 2.0}))  # it is a later one
    assert offer.taken == 102.0
    time.now = 103.0
    book.update(one, Offers({NAME: 5}, {NAME: 3.0}))
    assert offer.taken == 103.0


def test_the_partition_that_has_waited_longest_comes_first() -> None:
    book, one = OfferBook(Time().clock()), dispatcher()
    book.update(one, Offers({"a": 1, "b": 1, "c": 1}, {"a": 0.1, "b": 0.3, "c": 0.2}))
    assert [name for name, _ in book.open()] == ["b", "c", "a"]


def test_offers_that_were_taken_or_whose_dispatcher_is_gone_are_not_open() -> None:
    book, one, two = OfferBook(Time().clock()), dispatcher(), dispatcher()
    book.update(one, Offers({NAME: 3}))
    book.update(two, Offers({NAME: 3}))
    book.note_taken(NAME, one, 3)
    assert open_counts(book) == {NAME: [3]}
    two.closed.set()
    assert open_counts(book) == {}
    assert NAME not in book
