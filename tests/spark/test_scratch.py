"""Folders for temporary files."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spark.scratch import NoScratch, scratch_folder

HOLD = """
import sys
from spark.scratch import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_block() -> None:
    with scratch_folder() as first, scratch_folder() as second:
        assert first != second
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "inner").mkdir()
    assert not first.exists()
    assert not second.exists()


def test_folders_of_killed_processes_are_removed_and_those_of_others_stay(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    ) as process:
        assert process.stdout
        left = Path(process.stdout.readline().strip())
        try:
            assert left.parent == place
            (left / "shuffle").write_bytes(b"1")
            with scratch_folder():
                assert left.exists()  # its process is there
        finally:
            process.send_signal(signal.SIGKILL)
    assert left.exists()
    (place / "dzflow-spark.file").write_bytes(b"")
    (place / "dzflow-spark.link").symlink_to(place / "elsewhere")
    (place / "elsewhere").mkdir()
    with scratch_folder():
        assert not left.exists()
    assert (place / "elsewhere").exists()


def test_a_missing_place_is_named(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    with (
        pytest.raises(NoScratch, match=r"no place for temporary files: .*nowhere"),
        scratch_folder(),
    ):
        pass
