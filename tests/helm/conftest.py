"""The image, which is built once for all tests of a process."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.chroot import Chroot
from tests.helm.dockerfile import stages
from tests.helm.tool import ROOT

_SECONDS = 500.0


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chroot]:
    """The stage `build`, with what the stage `dzflow` takes of it."""
    root = tmp_path_factory.mktemp("image")
    root.chmod(0o755)
    made = Chroot(root)
    source = root / "src"
    source.mkdir()
    build = stages()["build"]
    for name, words in build.instructions:
        if name == "COPY":
            *copied, target = words
            for each in copied:
                copy(ROOT / each, source / target)
        elif name == "RUN":
            made.build(words[0], "/src", _SECONDS)
    shutil.rmtree(source)
    yield made
    shutil.rmtree(root)


def copy(source: Path, target: Path) -> None:
    """Copy as Docker does, without what is ignored."""
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(source, target, ignore=ignored)
    else:
        shutil.copy(source, target / source.name if target.is_dir() else target)
