"""The times that the commands of `dzflow trace` take."""

import time
from datetime import UTC, datetime

import pytest

from dzflow.cli.option_groups import BadOption
from dzflow.cli.trace.options import Period

NOON = 1_769_860_800_000_000  # 2026-01-31T12:00 UTC


def test_a_time_is_in_utc_unless_it_has_a_zone() -> None:
    assert Period().times() == (None, None)
    assert Period("2026-01-31T12:00", "2026-01-31T12:00+01:00").times() == (
        NOON,
        NOON - 3_600_000_000,
    )


def test_a_negative_time_is_in_seconds_before_now() -> None:
    begin = time.time()
    since, until = Period("-86400", "-0").times()
    end = time.time()
    assert since is not None
    assert until is not None
    assert begin - 86_400 <= since / 1e6 <= end - 86_400
    assert begin <= until / 1e6 + 1e-6
    assert datetime.fromtimestamp(since / 1e6, UTC) < datetime.fromtimestamp(until / 1e6, UTC)


@pytest.mark.parametrize("wrong", ["yesterday", "-1d", "--5", "86400x", "-" + "9" * 11])
def test_what_is_no_time_is_refused(wrong: str) -> None:
    with pytest.raises(BadOption, match="--since takes a time such as 2026-01-31T12:00 or -86400"):
        Period(wrong).times()
