"""Ships code to the workers of a cluster, which need pyarrow but not dzflow."""

import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHOLE = ("lark",)  # packages that are shipped with all their subpackages
_FOLDERS = ("dzflow", "dzflow/index", "spark/workers")  # only their modules, no subfolders
_FILES = (
    *("configurators/__init__.py", "configurators/state/__init__.py"),
    *("configurators/state/indexes.py", "spark/__init__.py"),
)
_SUFFIXES = (".py", ".lark")


@contextmanager
def shipped_code(spark: "SparkSession") -> Iterator[None]:
    """Let functions of `spark.workers` run on the workers while the block lasts.

    On this machine there is nothing to do: Spark starts the Python that runs this.
    """
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dzflow-code-") as folder:
        archive = Path(folder) / "dzflow-workers.zip"
        write_archive(archive)
        known = list(sys.path)
        context.addPyFile(str(archive))
        sys.path[:] = known  # Spark would have this process import from the archive, too
        yield


def write_archive(path: Path) -> None:
    """Write an archive from which Python can import `spark.workers` and all that it needs."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in _sources():
            archive.writestr(name, source.read_bytes())


def _sources() -> Iterator[tuple[str, Traversable]]:
    for package in _WHOLE:
        yield from _below(package, files(package), deep=True)
    for folder in _FOLDERS:
        yield from _below(folder, files(folder.replace("/", ".")), deep=False)
    for name in _FILES:
        folder, _, file = name.rpartition("/")
        yield name, files(folder.replace("/", ".")) / file


def _below(name: str, folder: Traversable, deep: bool) -> Iterator[tuple[str, Traversable]]:
    for found in sorted(folder.iterdir(), key=lambda each: each.name):
        if found.is_file() and found.name.endswith(_SUFFIXES):
            yield f"{name}/{found.name}", found
        elif deep and found.is_dir():
            yield from _below(f"{name}/{found.name}", found, deep)
