"""Child processes: their end is noticed, whatever else runs on the machine."""

import asyncio
import subprocess
import sys
from pathlib import Path

from api.children import ChildProcess

_NAMELESS = r"""
import pathlib, sys
pathlib.Path("/proc/self/comm").write_bytes(b"\xff\xfe")
print(flush=True)
sys.stdin.read()
"""


def test_the_end_of_a_child_is_noticed_beside_processes_with_odd_names(tmp_path: Path) -> None:
    async def scenario() -> None:
        child = ChildProcess("short", "this", {}, tmp_path / "short.out")
        child.start()
        async with asyncio.timeout(60):
            await child.exited.wait()

    with subprocess.Popen(
        [sys.executable, "-c", _NAMELESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        asyncio.run(scenario())
        other.stdin.close()
