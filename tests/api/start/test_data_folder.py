"""The data folder: only its owner can read it, and a path that is no folder is refused."""

from pathlib import Path

import pytest

from api.start.data_folder import DataFolder, FolderInUse


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_owner_can_read_the_folder(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    for path in (tmp_path / "new", there):
        with DataFolder(path):
            assert mode(path) == 0o700
        path.chmod(0o755)
        with DataFolder(path):
            assert mode(path) == 0o700


def test_a_folder_with_other_things_in_it_is_not_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    tmp_path.chmod(0o755)
    with DataFolder(tmp_path) as folder:
        assert mode(tmp_path) == 0o755
        folder.secret("s")
        assert mode(tmp_path / "s") == 0o600
        assert mode(tmp_path / "logs") == 0o700


def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FolderInUse, match="cannot be used"), DataFolder(path):
            pass
