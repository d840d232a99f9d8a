"""The data folder: only its owner can read it, and what others may have prepared is refused."""

import os
from pathlib import Path

import pytest

from api.start.data_folder import DataFolder, FolderInUse, find_open_parent
from dzflow.process.private_files import NotPrivate

ELSE = 12345  # the number of another user

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")


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
        assert mode(tmp_path / "up.lock") == 0o600


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, ELSE, ELSE)
    with pytest.raises(NotPrivate, match="belongs to another user"), DataFolder(tmp_path):
        pass
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("open_to", [0o1777, 0o777])
def test_a_folder_that_others_write_to_is_refused(open_to: int, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    tmp_path.chmod(open_to)
    with pytest.raises(NotPrivate, match=rf"such as {tmp_path}/dzflow"), DataFolder(tmp_path):
        pass
    assert mode(tmp_path) == open_to & 0o777
    with DataFolder(tmp_path / "dzflow"):
        assert mode(tmp_path / "dzflow") == 0o700


@as_root
def test_a_folder_that_a_group_of_others_writes_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    tmp_path.chmod(0o775)
    with DataFolder(tmp_path):  # the group is the owner's own
        assert mode(tmp_path) == 0o775
    (tmp_path / "up.lock").unlink()
    os.chown(tmp_path, -1, ELSE)
    with pytest.raises(NotPrivate, match="other users can put files"), DataFolder(tmp_path):
        pass


@as_root
def test_a_shared_folder_stays_shared_even_if_another_user_prepared_a_lock(tmp_path: Path) -> None:
    (tmp_path / "up.lock").touch()
    os.chown(tmp_path / "up.lock", ELSE, ELSE)
    for open_to in (0o1777, 0o777):
        tmp_path.chmod(open_to)
        with pytest.raises(NotPrivate), DataFolder(tmp_path):
            pass
        assert mode(tmp_path) == open_to & 0o777


@as_root
@pytest.mark.parametrize("name", ["stream-token", "etcd"])
def test_what_another_user_put_into_an_open_folder_is_not_used(name: str, tmp_path: Path) -> None:
    with DataFolder(tmp_path):
        pass
    tmp_path.chmod(0o777)
    (tmp_path / name).write_text("known to me")
    os.chown(tmp_path / name, ELSE, ELSE)
    with pytest.raises(NotPrivate, match=f"another user has put {name}"), DataFolder(tmp_path):
        pass


def test_a_secret_that_others_could_read_is_refused(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        first = folder.secret("s")
        assert folder.secret("s") == first
        (tmp_path / "s").chmod(0o644)
        with pytest.raises(NotPrivate, match="no secret any more; remove it"):
            folder.secret("s")
        (tmp_path / "s").unlink()
        assert folder.secret("s") != first


def test_a_parent_in_which_everybody_can_replace_the_folder_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert find_open_parent(path) is None
    path.parent.mkdir()
    path.parent.chmod(0o777)
    assert find_open_parent(path) == path.parent
    path.parent.chmod(0o1777)
    assert find_open_parent(path) is None


def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FolderInUse, match="cannot be used"), DataFolder(path):
            pass
