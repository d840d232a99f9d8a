"""Some hundred seeds run without a violation, and bugs built in on purpose are found.

Each run has a process of its own: it can be repeated only with a fixed hash of strings.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulation.mutations import MUTATIONS

_ROOT = Path(__file__).parents[2]
_MOST_SEEDS = "1000"  # until a bug is found; which seeds find it changes with the code


class Done(NamedTuple):
    """How a run ended, and what it printed."""

    returncode: int
    stdout: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs the simulation with the options that are given."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)}
    output = tmp_path_factory.mktemp("simulation") / "output"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.run", "--serve"],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as server:
        asked, answers = server.stdin, server.stdout
        assert asked
        assert answers

        def ask(*words: str) -> Done:
            print(json.dumps([str(output), *words]), file=asked, flush=True)
            return Done(int(answers.readline()), output.read_text())

        try:
            yield ask
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # also a run that hangs


def test_seeds_run_without_a_violation(run: Run) -> None:
    done = run("--seeds", "200")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("mode", ["sna", "sea"])
def test_seeds_with_hosts_that_come_and_go_run_without_a_violation(run: Run, mode: str) -> None:
    done = run("--seeds", "24", "--mode", mode, "--guests")
    assert done.returncode == 0, done.stdout
    assert "table used again" in done.stdout


@pytest.mark.parametrize(
    ("mode", "seed"),
    [
        ("sna", "608"),
        ("sna", "1258"),
        ("sna", "1326"),
        ("sna", "1462"),
        ("sna", "1478"),
        ("sna", "3015"),
        ("sea", "263"),
        ("sea", "520"),
        ("sea", "1601"),
        ("sea --guests", "67"),
        ("sea --guests", "163"),
        ("sea --guests", "187"),
        ("sea --guests", "60014"),
        ("sna --guests", "275"),
    ],
)
def test_seeds_that_once_showed_a_bug_run_without_a_violation(
    run: Run, mode: str, seed: str
) -> None:
    done = run("--from", seed, "--seeds", "1", "--mode", *mode.split())
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("mode", ["sna", "sea"])
def test_a_seed_can_be_replayed(run: Run, mode: str) -> None:
    given = "--replay", "7", "--mode", mode
    first, second = run(*given), run(*given)
    assert "FAULT" in first.stdout
    assert first.stdout == second.stdout


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_bug_is_found(run: Run, mutation: str) -> None:
    start = str(MUTATIONS[mutation].start)
    done = run("--from", start, "--seeds", _MOST_SEEDS, "--stop", "1", "--mutation", mutation)
    assert done.returncode == 1, done.stdout
    assert "1 seeds with violations" in done.stdout
