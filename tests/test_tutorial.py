"""The commands of the tutorial."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.service import running

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```sh ?([a-z-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    steps = FENCE.findall((ROOT / "docs/start/tutorial.md").read_text())
    assert len(steps) >= 5
    with running(tmp_path, topology="fat-tree:10") as service:
        commands = str(Path(sys.executable).parent)
        environment = {
            **os.environ,
            "DZFLOW_URL": service.url,
            "PATH": commands + os.pathsep + os.environ["PATH"],
        }

        def shell(text: str) -> "subprocess.Popen[str]":
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

        listener = None
        for name, text in steps:
            if name == "background":
                listener = shell(text)
                assert listener.stdout
                assert "listening" in listener.stdout.readline()
                continue
            with shell(text) as step:
                said, _ = step.communicate(timeout=60)
            assert step.returncode == 0, said
        assert listener
        said, _ = listener.communicate(timeout=60)
        assert listener.returncode == 0, said
        prices = re.findall(r"price=(\d+)", said)
        assert prices == ["500", "900"]
