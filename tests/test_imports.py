"""Imports between packages point one way, as the layout says."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_imports_point_the_way_the_layout_says() -> None:
    tool = ROOT / ".venv" / "bin" / "lint-imports"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
