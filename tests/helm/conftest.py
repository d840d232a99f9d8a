"""The images, which are built once for all tests of a process."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helm.chroot import Chroot
from tests.helm.dockerfile import stages
from tests.helm.tool import ROOT

_SECONDS = 500.0


@contextmanager
def built(root: Path, *names: str) -> Iterator[Chroot]:
    """A root with what stages of the Dockerfile make of the sources."""
    root.chmod(0o755)
    made = Chroot(root)
    source = root / "src"
    source.mkdir()
    for name, words in [each for stage in names for each in stages()[stage].instructions]:
        if name == "COPY":
            *copied, target = words
            for each in copied:
                copy(ROOT / each, source / target)
        elif name == "RUN":
            made.build(words[0], "/src", _SECONDS)
    shutil.rmtree(source)
    yield made
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chroot]:
    """The stage `build`, with what the stage `dzflow` takes of it."""
    with built(tmp_path_factory.mktemp("image"), "build") as made:
        yield made


@pytest.fixture(scope="session")
def spark_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chroot]:
    """The stages `build` and `build-spark`, with what the stage `spark` takes; this machine's Java.

    It takes minutes, and 1 GB.
    """
    with built(tmp_path_factory.mktemp("spark-image"), "build", "build-spark") as made:
        for words in stages()["spark"].all("COPY"):
            if not words[0].startswith("--from="):
                source, target = words
                shutil.copy(ROOT / source, made.root / target.lstrip("/"))
        yield made


def copy(source: Path, target: Path) -> None:
    """Copy as Docker does, without what is ignored."""
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(source, target, ignore=ignored)
    else:
        shutil.copy(source, target / source.name if target.is_dir() else target)
