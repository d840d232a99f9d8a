"""The examples of the guide run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

from tests.dzflow.sdk.service import LIMIT, Service

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "sdk.md"


def test_the_examples_print_the_event(service: Service) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        program = example.replace("http://localhost:8080", service.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "{'price': 500, 'volume': 10}\n"
    assert service.records == {}


def test_a_child_process_can_have_a_client_of_its_own(service: Service) -> None:
    program = f"""
import os
from dzflow import ControlPlane

with ControlPlane("{service.url}", host="h1") as parents:
    parents.subscribe("stocks", {{}})
    child = os.fork()
    with ControlPlane("{service.url}", host="h1") as own:
        events = own.subscribe("stocks", {{}})
        own.advertise("stocks", {{}}).publish({{"price": 1, "volume": 1}})
        assert events.get(20)
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert service.records == {}
