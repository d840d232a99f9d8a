"""Some hundred seeds run without a violation, and bugs built in on purpose are found.

Each test starts a new process: a run can be repeated only with a fixed hash of strings.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 500.0
_MOST_SEEDS = "1000"  # until a bug is found; which seeds find it changes with the code


def run(*given: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation with these options."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", *given],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )


def test_seeds_run_without_a_violation() -> None:
    done = run("--seeds", "200")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mode", "seed"),
    [
        ("sna", "608"),
        ("sna", "1326"),
        ("sna", "1462"),
        ("sna", "1478"),
        ("sna", "3015"),
        ("sea", "1601"),
    ],
)
def test_seeds_that_once_showed_a_bug_run_without_a_violation(mode: str, seed: str) -> None:
    done = run("--from", seed, "--seeds", "1", "--mode", mode)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["sna", "sea"])
def test_a_seed_can_be_replayed(mode: str) -> None:
    given = "--replay", "7", "--mode", mode
    first, second = run(*given), run(*given)
    assert "FAULT" in first.stdout
    assert first.stdout == second.stdout


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_bug_is_found(mutation: str) -> None:
    start = str(MUTATIONS[mutation].start)
    done = run("--from", start, "--seeds", _MOST_SEEDS, "--stop", "1", "--mutation", mutation)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 seeds with violations" in done.stdout
