"""Histograms: which bound a duration counts under."""

from configurators.histogram import STEP_BOUNDS, Histogram, HistogramCounts


def test_a_duration_counts_under_the_first_bound_that_it_does_not_exceed() -> None:
    counts = Histogram((1.0, 2.0))
    for seconds in (0.0, 1.0, 1.5, 2.0, 2.1, 100.0):
        counts.observe(seconds)
    assert counts.current() == HistogramCounts((2, 2, 2), 106.6)


def test_what_was_read_does_not_change_later() -> None:
    counts = Histogram()
    before = counts.current()
    counts.observe(0.003)
    assert before == HistogramCounts((0,) * (len(STEP_BOUNDS) + 1))
    assert counts.current() != before
