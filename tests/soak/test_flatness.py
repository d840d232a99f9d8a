"""Whether a series is flat does not depend on noise, single peaks or a saw's teeth."""

from random import Random

import pytest

from tests.soak.flatness import Point, by_minute, judge, settled, slope


def series(*values: float) -> list[Point]:
    return [Point(float(minute), value) for minute, value in enumerate(values)]


def noisy(level: float, per_minute: float, noise: float) -> list[Point]:
    random = Random(1)
    return [
        Point(n / 6, level + per_minute * n / 6 + random.uniform(-noise, noise)) for n in range(300)
    ]


def test_the_slope_is_the_median_of_all_slopes() -> None:
    assert slope(series(0, 2, 4, 6)) == 2
    assert slope(series(5)) == 0
    assert slope([Point(1, 3), Point(1, 4)]) == 0
    # One point far out changes nothing.
    assert slope(series(0, 2, 4, 1000, 8, 10, 12)) == 2


def test_a_constant_series_is_flat_however_noisy() -> None:
    assert judge(noisy(100, 0, 20), "up", 0.05, 0).trend == "flat"


def test_a_slow_rise_is_seen_through_noise() -> None:
    found = judge(noisy(100, 0.2, 5), "up", 0.05, 0)
    assert found.trend == "worse"
    assert found.change == pytest.approx(10, abs=2)
    assert found.share == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(("worse", "trend"), [("up", "worse"), ("down", "better")])
def test_a_rise_is_bad_or_good(worse: str, trend: str) -> None:
    assert judge(noisy(100, 1, 5), worse, 0.05, 0).trend == trend  # type: ignore[arg-type]
    assert judge(noisy(200, -1, 5), worse, 0.05, 0).trend != trend  # type: ignore[arg-type]


def test_a_change_within_the_floor_or_the_tolerance_does_not_count() -> None:
    rising = series(*range(10))
    assert judge(rising, "up", 0.0, 9.0).trend == "flat"
    assert judge(rising, "up", 0.0, 8.9).trend == "worse"
    assert judge(rising, "up", 2.0, 0.0).trend == "flat"
    assert judge(rising, "up", 1.9, 0.0).trend == "worse"


def test_a_saw_is_flat_and_a_rising_saw_is_not() -> None:
    teeth = [float(n % 7) for n in range(300)]
    assert (
        judge([Point(n / 6, 100 + t) for n, t in enumerate(teeth)], "up", 0.05, 0).trend == "flat"
    )
    rising = [Point(n / 6, 100 + t + n / 10) for n, t in enumerate(teeth)]
    assert judge(rising, "up", 0.05, 0).trend == "worse"


def test_few_points_say_nothing() -> None:
    assert judge(series(1, 2, 3, 4), "up", 0.05, 0).trend == "too short"


def test_a_series_of_zeros_is_flat() -> None:
    assert judge(series(0, 0, 0, 0, 0), "up", 0.05, 0).trend == "flat"


def test_the_median_stands_for_a_minute() -> None:
    points = [Point(0.1, 1), Point(0.5, 100), Point(0.9, 2), Point(2.0, 7)]
    assert by_minute(points) == [Point(0.5, 2), Point(2.5, 7)]


def test_what_counts_begins_with_the_tenth_minute_or_with_a_third_of_a_short_run() -> None:
    long = [Point(float(minute), 0) for minute in range(61)]
    assert settled(long, 10, 60)[0].minute == 10
    short = [Point(float(minute), 0) for minute in range(7)]
    assert settled(short, 10, 6)[0].minute == 2
