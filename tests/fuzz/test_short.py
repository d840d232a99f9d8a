"""A short pass over the whole border, always the same, finds nothing.

It runs in a process of its own: inputs can be repeated only with a fixed hash of strings.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.fuzz.campaign import BlockResult, replay
from tests.fuzz.registry import TARGETS

_ROOT = Path(__file__).parents[2]
_REGRESSIONS = Path(__file__).with_name("regressions")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BlockResult]:
    """The result of the first block of every target."""
    folder = tmp_path_factory.mktemp("fuzz")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", "--short", "--folder", str(folder)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = (folder / "blocks.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=BlockResult) for line in lines]
    return {result.target: result for result in found}


@pytest.mark.parametrize("name", TARGETS)
def test_the_border_refuses_or_takes_every_input(
    results: dict[str, BlockResult], name: str
) -> None:
    result = results[name]
    assert [finding.reason for finding in result.findings] == []
    # Both happen often, or else the inputs would test little.
    assert sum(result.accepted.values()) > result.inputs // 50
    assert sum(result.refused.values()) > result.inputs // 50


@pytest.mark.parametrize(
    "path", sorted(_REGRESSIONS.glob("*/*.bin")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_inputs_that_once_broke_something_no_longer_do(path: Path) -> None:
    replay(TARGETS[path.parent.name], path.read_bytes())
