"""Child processes: their end is noticed, whatever else runs on the machine."""

import asyncio
import subprocess
import sys
from pathlib import Path

from api.children import ChildProcess, keep

_NAMELESS = r"""
import pathlib, sys
pathlib.Path("/proc/self/comm").write_bytes(b"\xff\xfe")
print(flush=True)
sys.stdin.read()
"""


def test_a_child_that_has_died_is_told_of_and_started_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        dead: asyncio.Queue[int] = asyncio.Queue()
        child = ChildProcess("short", "json.tool", {}, tmp_path / "short.out")
        child.start()
        pids = [child.pid]
        keeping = asyncio.create_task(keep(child, lambda _: None, dead.put))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            child.kill()
            assert await dead.get() == pids[0]
            while child.pid in (None, *pids):
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        child.kill()
        await child.exited.wait()

    asyncio.run(scenario())


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
