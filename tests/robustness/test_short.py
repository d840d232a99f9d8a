"""A short pass of faults under traffic, with fixed seeds; `make robustness` is the long one."""

import asyncio
from pathlib import Path

import pytest

from tests.robustness.session import Options, run_session


@pytest.mark.parametrize(
    ("arrangement", "seed", "rounds"), [("whole", 1240, 2), ("wired", 1578, 3)]
)
def test_faults_cost_neither_requests_nor_events(
    arrangement: str, seed: int, rounds: int, tmp_path: Path
) -> None:
    options = Options(rounds, 2, arrangement)
    said: list[str] = []
    result = asyncio.run(run_session(seed, options, tmp_path, said.append))
    assert not result.violations, "\n".join([*map(str, result.violations), *said])
    assert result.faults
