"""The examples print what the documentation shows."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_example_prints_what_the_architecture_page_says() -> None:
    done = subprocess.run(
        [sys.executable, "examples/stocks.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs/architecture.md").read_text()
    shown = [line.strip() for line in page.splitlines() if line.startswith(("    h2 ", "    {"))]
    assert len(shown) == 3
    assert set(shown) <= set(done.stdout.splitlines())
