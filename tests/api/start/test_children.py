"""Child processes: their end is noticed, and they are restarted."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from api.start.children import ChildProcess, keep_running
from configurators.store.etcd.errors import StoreError
from tests.support import until

_NAMELESS = r"""
import pathlib, sys
pathlib.Path("/proc/self/comm").write_bytes(b"\xff\xfe")
print(flush=True)
sys.stdin.read()
"""


async def _fail(_: str) -> None:
    raise OSError("no such place")


async def _refuse(_: str) -> None:
    raise StoreError("etcd is away")


async def _hang(_: str) -> None:
    await asyncio.Event().wait()


async def _succeed(_: str) -> None:
    pass


@pytest.mark.parametrize(
    ("unregister", "logged"),
    [
        (_succeed, ""),
        (_fail, "no such place"),
        (_refuse, "over: etcd is away"),
        (_hang, "not answered in time"),
    ],
)
async def test_a_child_that_has_died_is_unregistered_and_restarted(
    unregister: Callable[[str], Awaitable[None]],
    logged: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dead: list[str] = []

    async def note(key: str) -> None:
        dead.append(key)
        await unregister(key)

    child = ChildProcess("registers", "tests.api.registers", {}, tmp_path / "registers.out")
    child.start()
    pids = [child.pid]
    keeping = asyncio.create_task(keep_running(child, lambda _: None, note, unregister_within=0.1))
    async with asyncio.timeout(60):
        await child.ready.wait()
        child.kill()
        await until(lambda: child.pid not in (None, *pids))
    assert dead == [f"dispatchers/{pids[0]}"]
    # That of the dead one is forgotten; the new one may have reported its own by now.
    assert child.registered in (None, f"dispatchers/{child.pid}")
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    child.kill()
    await child.exited.wait()
    assert logged in caplog.text
    assert bool(logged) == ("wait until its lease is over" in caplog.text)


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


def test_what_a_child_prints_goes_to_stderr_if_logs_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        child = ChildProcess("short", "this", {}, tmp_path / "short.out", to_stderr=True)
        child.start()
        async with asyncio.timeout(60):
            await child.exited.wait()

    asyncio.run(scenario())
    assert "Beautiful is better than ugly." in capfd.readouterr().err
    assert not (tmp_path / "short.out").exists()


async def test_a_child_that_cannot_be_started_is_started_when_that_is_possible_again(
    tmp_path: Path,
) -> None:
    logs, away = tmp_path / "logs", tmp_path / "away"
    logs.mkdir()
    told: list[str] = []
    child = ChildProcess("registers", "tests.api.registers", {}, logs / "registers.out")
    child.start()
    keeping = asyncio.create_task(keep_running(child, told.append))
    async with asyncio.timeout(60):
        await child.ready.wait()
        logs.rename(away)
        child.kill()
        await until(lambda: any("registers cannot be started" in text for text in told))
        away.rename(logs)
        await child.ready.wait()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await child.stop()


async def test_a_child_that_cannot_be_restarted_can_be_stopped(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    child = ChildProcess("short", "this", {}, logs / "short.out")
    child.start()
    async with asyncio.timeout(60):
        await child.exited.wait()
        logs.rename(tmp_path / "away")
        with pytest.raises(FileNotFoundError):
            child.start()
        await child.stop()
