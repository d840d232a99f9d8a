"""Sums of what applications report are bounded: in all, and of hosts."""

from api.http.metrics.reports import Reports


def test_hosts_are_summed_up_apart() -> None:
    reports = Reports(10)
    assert reports.add("h1", {"a": {"received": 3}}, 1.0) == [(("a", "received"), 3)]
    reports.add("h2", {"a": {"received": 4, "unwanted": 1}}, 2.0)
    assert reports.by_space() == {"a": {"received": 7, "unwanted": 1}}
    assert reports.of_host("h1") == ({"a": {"received": 3}}, 1.0)
    assert reports.of_host("h2") == ({"a": {"received": 4, "unwanted": 1}}, 2.0)
    assert reports.of_host("h3") == ({}, None)


def test_the_host_that_has_not_reported_for_longest_is_forgotten_first() -> None:
    reports = Reports(4)
    for host in ("h1", "h2"):
        reports.add(host, {"a": {"received": 1, "unwanted": 1}}, 1.0)
    reports.add("h1", {"a": {"received": 1}}, 2.0)
    reports.add("h3", {"a": {"received": 5}}, 3.0)
    assert reports.of_host("h2") == ({}, None)
    assert reports.of_host("h1") == ({"a": {"received": 2, "unwanted": 1}}, 2.0)
    assert reports.of_host("h3") == ({"a": {"received": 5}}, 3.0)
    assert reports.by_space() == {"a": {"received": 8, "unwanted": 2}}


def test_hosts_that_report_nothing_are_bounded_too() -> None:
    reports = Reports(3)
    for n in range(9):
        reports.add(f"h{n}", {}, float(n))
    known = [n for n in range(9) if reports.of_host(f"h{n}")[1] is not None]
    assert known == [6, 7, 8]


def test_a_host_with_too_many_counters_gets_other() -> None:
    reports = Reports(3)
    reports.add("h1", {"a": {f"n{n}": 1 for n in range(6)}}, 1.0)
    for sums in (reports.of_host("h1")[0], reports.by_space()):
        assert sums == {"a": {"n0": 1, "n1": 1, "n2": 1}, "other": {"other": 3}}
