"""The timing of an operation adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.requests.timing import timing_of

seconds = st.floats(0, 100)


@given(seconds, seconds, seconds, seconds, seconds, seconds)
def test_the_parts_of_the_time_add_up_exactly(
    total: float, indexed: float, journaled: float, decided: float, pushed: float, committed: float
) -> None:
    t = timing_of(total, indexed, journaled, decided, pushed, committed)
    parts = (t.indexed_ms, t.journaled_ms, t.queued_ms, t.decided_ms, t.pushed_ms, t.committed_ms)
    assert sum(parts) == t.total_ms
    assert min(parts) >= 0
    assert t.total_ms == pytest.approx(total * 1000, abs=0.001)
    assert t.indexed_ms == pytest.approx(min(indexed, total) * 1000, abs=0.001)
