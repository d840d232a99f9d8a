"""The `dzflow` command: what it says when something is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).parent / "dzflow"


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([COMMAND, *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "nothing"], "there is no benchmark 'nothing'; choose from engine"),
        (["bench", "all", "--json", "x"], "name one benchmark"),
        (["lab", "up", "--topology", "mesh:3"], "mesh:3"),
    ],
)
def test_a_mistake_is_answered_in_one_line(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_help_lists_the_subcommands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "bench" in done.stdout
    assert "lab" in done.stdout
