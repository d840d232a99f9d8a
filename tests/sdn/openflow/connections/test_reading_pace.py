"""How fast messages are read that nobody has asked for."""

from sdn.openflow.connections.reading_pace import ReadingPace


def test_a_burst_is_read_at_once_and_more_is_spread_over_time() -> None:
    pace = ReadingPace(rate=100)
    assert pace.count(200, now=10.0) == 0
    assert pace.count(50, now=10.0) == 0.5
    assert pace.count(0, now=10.5) == 0
    assert pace.count(100, now=11.5) == 0
    assert pace.count(100, now=100.0) == 0
