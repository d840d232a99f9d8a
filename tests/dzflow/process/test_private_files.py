"""Private files: who can read them, and what another user may have put in their place."""

import os
from pathlib import Path

import pytest

from dzflow.process.private_files import NotPrivate, find_exposure, read_private, write_private


@pytest.fixture(autouse=True)
def open_to_all() -> object:
    """Files are open to others unless the code under test says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_only_the_owner_can_read_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("before")
    path.chmod(0o644)
    write_private(path, b"now")
    assert path.read_text() == "now"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "f"
    victim.write_text("precious")
    for name in (path, path.with_name("f.part"), path.with_suffix(".draft")):
        name.symlink_to(victim)
    write_private(path, b"now")
    assert victim.read_text() == "precious"
    assert not path.is_symlink()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError, match="f"):
        write_private(tmp_path / "f", b"x")
    assert os.listdir(tmp_path) == ["f"]


def test_a_secret_that_others_could_know_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_private(path, b"secret")
    assert read_private(path) == "secret"
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(NotPrivate, match=rf"mode {mode:04o}.*remove it"):
            read_private(path)
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(NotPrivate, match="is a link"):
        read_private(link)
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_secret_of_another_user_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_private(path, b"secret")
    os.chown(path, 12345, 12345)
    with pytest.raises(NotPrivate, match="belongs to another user"):
        read_private(path)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o600, None),
        (0o400, None),
        (0o640, "its group can read"),
        (0o644, "everybody can read"),
        (0o660, "its group can change"),
        (0o666, "everybody can change"),
    ],
)
def test_an_exposed_file_is_reported(mode: int, said: str | None, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.touch()
    path.chmod(mode)
    found = find_exposure(path)
    assert (found is None) if said is None else (found is not None and found.startswith(said))
    assert find_exposure(tmp_path / "none") is None
