"""Files that other programs write to stay small."""

import asyncio
import subprocess
from pathlib import Path

from api.start.log_trimming import keep_trimmed, trim
from tests.support import until


def test_a_small_file_and_a_missing_one_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "etcd.log"
    assert not trim(file, 10, 3)
    file.write_bytes(bytes(10))
    assert not trim(file, 10, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["etcd.log"]


def test_so_many_older_files_are_kept_and_all_have_the_mode_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "etcd.log"
    file.touch(0o600)
    for number in range(5):
        file.write_bytes(f"{number}".encode() * 11)
        assert trim(file, 10, 3)
    found = {path.name: path.read_text()[:1] for path in tmp_path.iterdir()}
    assert found == {"etcd.log": "", "etcd.log.1": "4", "etcd.log.2": "3", "etcd.log.3": "2"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


async def test_a_program_that_writes_on_and_on_takes_bounded_space(tmp_path: Path) -> None:
    file = tmp_path / "api-1.out"
    with file.open("ab") as output:
        writer = subprocess.Popen(["yes", "x" * 100], stdout=output)
    try:
        task = asyncio.create_task(keep_trimmed(lambda: [file], 1 << 16, 2, every=0.01))
        await until(lambda: (tmp_path / "api-1.out.2").exists())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    finally:
        writer.kill()
        writer.wait()
    trim(file, 0, 2)  # whatever was written since the last time
    assert file.stat().st_size == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"api-1.out", "api-1.out.1", "api-1.out.2"}
