"""A command runs with low priority and a bounded log, and leaves nothing behind."""

import asyncio
import json
import sys
import threading
from pathlib import Path

import pytest

from monitor.jobs import bounded_log, job_process
from monitor.jobs.job_process import run_command
from tests.service import processes_with
from tests.support import until

LONG = 500.0  # seconds; no test takes as long

HANG = """
import signal, subprocess, sys
from pathlib import Path

other = [sys.executable, "-c", "import signal; signal.pause()", sys.argv[1]]
subprocess.Popen(other, process_group=0)
Path(sys.argv[1], "started").touch()
signal.pause()
"""
TALK = """
for number in range(3000):
    print("line", number, "." * 40)
print("the end")
"""
TELL = """
import json, os, pathlib, stat

file = pathlib.Path(os.environ["TMPDIR"], "owners.json")
mode = stat.S_IMODE(file.stat().st_mode)
print(json.dumps({"nice": os.nice(0), "text": file.read_text(), "mode": mode}))
"""


async def run(folder: Path, script: str) -> int:
    command = [sys.executable, "-c", script, str(folder)]
    return await run_command(command, folder / "log", folder / "tmp", LONG, niceness=0)


async def test_the_command_has_the_lowest_priority_and_its_private_files(tmp_path: Path) -> None:
    files = {"owners.json": b"{}"}
    command = [sys.executable, "-c", TELL]
    code = await run_command(command, tmp_path / "log", tmp_path / "tmp", LONG, files=files)
    text = (tmp_path / "log").read_text()
    assert code == 0, text
    assert json.loads(text) == {"nice": 19, "text": "{}", "mode": 0o600}
    assert not (tmp_path / "tmp").exists()


async def test_of_a_long_log_the_end_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_log, "_MOST_BYTES", 50_000)
    monkeypatch.setattr(bounded_log, "_KEPT_BYTES", 10_000)
    monkeypatch.setattr(bounded_log, "_CHUNK", 5_000)
    assert await run(tmp_path, TALK) == 0
    first, *lines = (tmp_path / "log").read_text().splitlines()
    assert first == "[the beginning of the output was cut off]"
    assert lines[-1] == "the end"
    numbers = [int(line.split()[1]) for line in lines[:-1]]
    assert numbers == list(range(numbers[0], 3000)), "nothing is missing from there on"
    assert 10_000 < (tmp_path / "log").stat().st_size <= 50_000


async def test_a_short_log_is_complete(tmp_path: Path) -> None:
    assert await run(tmp_path, TALK) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert (len(lines), lines[0][:6], lines[-1]) == (3001, "line 0", "the end")


async def test_cancellations_while_it_is_cleaned_up_leave_nothing_behind(tmp_path: Path) -> None:
    task = asyncio.create_task(run(tmp_path, HANG))
    await until((tmp_path / "started").exists)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert processes_with(str(tmp_path)) == {}
    assert not (tmp_path / "tmp").exists()


async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_has_started(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HANG, str(tmp_path)]
    limit = 0.5
    while not (tmp_path / "started").exists():
        # On a busy machine, the time may be over before the command has started another process.
        limit *= 2
        with pytest.raises(TimeoutError):
            await run_command(command, tmp_path / "log", tmp_path / "tmp", limit, niceness=0)
    assert processes_with(str(tmp_path)) == {}
    assert not (tmp_path / "tmp").exists()


async def test_a_command_that_cannot_be_started_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_command(["true"], tmp_path / "nowhere" / "log", tmp_path / "tmp", LONG)
    assert not (tmp_path / "tmp").exists()


async def test_a_cancellation_counts_even_if_a_file_cannot_be_written_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, cancelled = threading.Event(), threading.Event()

    def write(path: Path, _: bytes) -> None:
        writing.set()
        cancelled.wait()
        raise OSError(f"no space left for {path}")

    monkeypatch.setattr(job_process, "write_private", write)
    command, files = [sys.executable, "-c", TELL], {"owners.json": b"{}"}
    task = asyncio.create_task(
        run_command(command, tmp_path / "log", tmp_path / "tmp", LONG, files=files)
    )
    await until(writing.is_set)
    task.cancel()
    await asyncio.sleep(0)
    cancelled.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not (tmp_path / "tmp").exists()
