"""Limits: rates hold, queues are bounded, and no host keeps another one waiting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.requests.intake.limits import Admission, Rates, WorkRates


def test_a_host_may_use_its_rate_and_no_more() -> None:
    rates = Rates(None, 10.0, burst_s=1.0)
    assert [rates.admit("h1", 0.0) for _ in range(10)] == [0.0] * 10
    wait = rates.admit("h1", 0.0)
    assert wait == pytest.approx(0.1)
    assert rates.admit("h2", 0.0) == 0.0
    assert rates.admit("h1", wait) == 0.0


def test_the_overall_rate_counts_all_hosts() -> None:
    rates = Rates(5.0, None, burst_s=1.0)
    admitted = [rates.admit(f"h{n}", 100.0) == 0.0 for n in range(8)]
    assert admitted == [True] * 5 + [False] * 3


def test_a_refused_operation_costs_nothing() -> None:
    rates = Rates(100.0, 1.0, burst_s=1.0)
    assert rates.admit("h1", 0.0) == 0.0
    for _ in range(200):
        assert rates.admit("h1", 0.0) > 0.0
    assert rates.admit("h2", 0.0) == 0.0


def test_what_was_used_beyond_the_limit_is_paid_back() -> None:
    work = Rates(1000.0, 100.0, burst_s=1.0)
    assert work.wait("h1", 0.0) == 0.0
    work.use("h1", 350.0, 0.0)
    assert work.wait("h1", 0.0) == pytest.approx(2.51)
    assert work.wait("h2", 0.0) == 0.0
    assert work.wait("h1", 2.6) == 0.0
    work.use("h2", 5_000.0, 2.6)
    assert work.wait("h1", 2.6) > 3.0  # all together have used too much


@pytest.mark.parametrize("per_host", [None, 100.0])
def test_what_all_have_used_refuses_only_those_who_used_some_lately(
    per_host: float | None,
) -> None:
    work = WorkRates(200.0, per_host, burst_s=1.0)
    work.use("h1", 2_000.0, 0.0)
    work.use("h2", 10.0, 0.0)
    assert work.wait_for_all("h1", 0.0) > 9.0
    assert work.wait_for_all("h2", 0.0) > 9.0
    assert work.wait_for_own("h2", 0.0) == 0.0
    assert work.wait_for_all("h2", 0.9) > 8.0
    assert work.wait_for_all("h2", 2.0) == 0.0
    assert work.wait_for_all("h3", 2.0) == 0.0
    assert work.wait_for_all("h1", 2.0) > 7.0


def test_the_queue_is_bounded_overall_and_per_host() -> None:
    admission: Admission[int] = Admission(10, 10, queue=5, queue_per_host=3)
    assert [admission.put("h1", n) for n in range(4)] == [True, True, True, False]
    assert [admission.put("h2", n) for n in range(3)] == [True, True, False]
    assert admission.queued == 5


def test_a_flood_of_one_host_does_not_delay_another_beyond_a_turn() -> None:
    admission: Admission[str] = Admission(1_000, 500, 10_000, 5_000)
    for n in range(4_000):
        admission.put("flood", f"flood {n}")
    admission.put("quiet", "quiet")
    assert "quiet" in admission.next_to_begin(17)


def test_what_one_host_has_running_is_bounded() -> None:
    admission: Admission[str] = Admission(1_000, 5, 10_000, 5_000)
    for n in range(20):
        admission.put("flood", f"flood {n}")
    assert len(admission.next_to_begin(100)) == 5
    admission.put("quiet", "quiet")
    assert admission.next_to_begin(100) == ["quiet"]
    admission.release("flood")
    assert admission.next_to_begin(100) == ["flood 5"]


def test_what_takes_long_lets_others_of_its_host_begin_but_not_all_of_them() -> None:
    admission: Admission[str] = Admission(1_000, 2, 10_000, 5_000, most_per_host=5)
    for n in range(20):
        admission.put("h1", f"{n}")
    assert admission.next_to_begin(100) == ["0", "1"]
    admission.slow("h1")
    assert admission.next_to_begin(100) == ["2"]
    for _ in range(3):
        admission.slow("h1")
    assert admission.next_to_begin(100) == ["3", "4"]
    admission.slow("h1")
    assert admission.next_to_begin(100) == [], "there are five"
    admission.release("h1", slow=True)
    assert admission.next_to_begin(100) == ["5"]
    for _ in range(4):
        admission.release("h1", slow=True)
    assert admission.next_to_begin(100) == ["6"], "the last one and this one are quick"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10)), max_size=200),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 12),
)
def test_nothing_is_lost_or_doubled_and_each_host_keeps_its_order(
    steps: list[tuple[str, int]], window: int, per_host: int, most: int
) -> None:
    def end(name: str) -> None:
        admission.release(name, slow=name in slow)
        if name in slow:
            slow.remove(name)

    admission: Admission[tuple[str, int]] = Admission(window, per_host, 50, 20, most)
    accepted: list[tuple[str, int]] = []
    begun: list[tuple[str, int]] = []
    running: list[str] = []
    slow: list[str] = []  # the first of these hosts' that run
    for number, (host, choice) in enumerate(steps):
        if choice < 6:
            if admission.put(host, (host, number)):
                accepted.append((host, number))
        elif choice < 8:
            taken = admission.next_to_begin(choice)
            begun += taken
            running += [name for name, _ in taken]
        elif choice == 10 and running.count(host) > slow.count(host):
            admission.slow(host)
            slow.append(host)
        elif running:
            end(running.pop(0))
        assert admission.running == len(running) <= window
        for name in "abc":
            assert running.count(name) <= max(per_host, most)
            assert running.count(name) - slow.count(name) <= per_host
        assert admission.queued == len(accepted) - len(begun) == sum(admission.waiting.values())
    while admission.queued:
        while running:
            end(running.pop())
        taken = admission.next_to_begin(100)
        assert taken
        begun += taken
        running += [name for name, _ in taken]
    assert sorted(begun) == sorted(accepted)
    for name in "abc":
        assert [n for h, n in begun if h == name] == [n for h, n in accepted if h == name]
