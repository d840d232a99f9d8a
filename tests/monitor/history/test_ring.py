"""The history is bounded, and read page by page."""

from monitor.history.event import HistoryEvent
from monitor.history.ring import PAGE, HistoryRing


def filled(count: int, size: int = 10_000, at: float = 5.0) -> HistoryRing:
    ring = HistoryRing(size, "d-1")
    for number in range(count):
        ring.add(HistoryEvent(at, "switch", "lost", str(number)))
    return ring


def test_pages_give_every_event_once_even_of_one_moment() -> None:
    ring = filled(2 * PAGE + 7)
    found: list[str] = []
    since: float | None = 0.0
    while since is not None:
        page = ring.page(since)
        assert len(page.items) <= PAGE
        assert page.complete
        assert {page.process, *(event.process for event in page.items)} == {"d-1"}
        found += [event.text for event in page.items]
        since = page.next
    assert found == [str(number) for number in range(2 * PAGE + 7)]


def test_the_oldest_events_are_forgotten_and_a_page_says_so() -> None:
    page = filled(12, size=5).page(0)
    assert [event.text for event in page.items] == ["7", "8", "9", "10", "11"]
    assert not page.complete
    assert filled(12, size=5).page(page.items[0].at).complete


def test_a_clock_that_is_set_back_does_not_disorder_events() -> None:
    ring = filled(1)
    later = ring.add(HistoryEvent(1.0, "switch", "returned", "late"))
    assert later.at > 5.0
    assert [event.text for event in ring.page(5.0).items] == ["late"]
