"""The verdict of the demo."""

from io import StringIO

import pytest
from rich.console import Console

from dzflow.cli.demo.command import Outcome, show_verdict


@pytest.mark.parametrize(
    ("missed", "surplus", "verdict"),
    [
        (0, 0, "nothing was missed"),
        (2, 0, "2 missed, 0 surplus"),
        (0, 1, "0 missed, 1 surplus"),
    ],
)
def test_the_verdict_counts_missed_and_surplus_events(
    missed: int, surplus: int, verdict: str
) -> None:
    outcome = Outcome("h1", 1, 10, 10 - missed, missed, surplus, 3, [0.001] * 10)
    console = Console(file=StringIO(), record=True, width=100)
    assert show_verdict([outcome], 4, 10, console) is (missed + surplus == 0)
    assert console.export_text().splitlines()[-1] == verdict
