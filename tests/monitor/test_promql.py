"""The reader of PromQL finds what an expression mentions, and refuses what it cannot read."""

import pytest

from tests.promql import BadPromQL, Expression, Matcher, Series, read


def test_series_matchers_and_functions_are_found() -> None:
    text = 'sum by (a, b) (rate(x_total{job="$job", a!~"1|2"}[$__rate_interval])) / max(y) > 0.5'
    matchers = (Matcher("job", "=", "$job"), Matcher("a", "!~", "1|2"))
    assert read(text) == Expression(
        (Series("x_total", matchers, ("sum", "rate"), True), Series("y", (), ("max",), False)),
        frozenset({"a", "b"}),
        ("/", ">"),
        0.5,
    )


def test_numbers_within_a_function_are_no_threshold() -> None:
    found = read("histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))")
    assert found.threshold is None
    assert found.series[0].within == ("histogram_quantile", "sum", "rate")


@pytest.mark.parametrize("text", ["sum(x", "x)", 'x{a="1"', "sum by a (x)", "x ? y", "sum by (a"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadPromQL):
        read(text)
