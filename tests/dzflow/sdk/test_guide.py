"""The examples of the guide run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

from tests.dzflow.sdk.fake_service import FakeService
from tests.support import WAIT

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "sdk.md"


def test_the_examples_print_the_event(service: FakeService) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        program = example.replace("http://localhost:8080", service.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "{'price': 500, 'volume': 10}\n"
    assert service.records == {}
