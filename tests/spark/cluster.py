"""A standalone Spark cluster on this machine, whose workers have a Python without dzflow."""

import os
import socket
import subprocess
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy
import pyarrow  # type: ignore[import-untyped]
import pyspark

from configurators.store.server.server import free_ports
from tests.service import eventually, processes_with
from tests.spark.quick import JAVA

HOME = Path(pyspark.__file__).parent
WORKERS = 2
_STOP = 60.0  # seconds
_LOOPBACK = "127.0.0.1"


def link_packages(folder: Path) -> None:
    """Put pyarrow, and what it needs, into a folder; nothing else of this environment."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in (numpy, pyarrow):
        source = Path(str(module.__file__)).parent
        for name in (source.name, f"{source.name}.libs"):
            if source.with_name(name).exists():
                (folder / name).symlink_to(source.with_name(name))


class Cluster:
    """A master and its workers; `folder` is in the environment of all their processes."""

    def __init__(self, folder: Path, master: str, python: Path) -> None:
        self.folder = folder
        self.master = master
        self.python = python

    def used_workers(self) -> int:
        """How many workers have run a part of an application."""
        return len({found.parents[1] for found in self.folder.glob("worker-*/app-*/*")})


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with two workers of one core each; when the block ends, no process is left."""
    python = _make_environment(folder / "python")
    (port,) = free_ports(1)
    master = f"spark://{_LOOPBACK}:{port}"
    try:
        with ExitStack() as opened:
            opened.enter_context(
                _daemon(folder, "master.Master", "--port", str(port), "--webui-port", "0")
            )
            eventually(lambda: _listens(port), "the master listens")
            for n in range(WORKERS):
                place = ("--cores", "1", "--memory", "1g", "-d", str(folder / f"worker-{n}"))
                opened.enter_context(
                    _daemon(folder, "worker.Worker", "--webui-port", "0", *place, master)
                )
            yield Cluster(folder, master, python)
    finally:
        eventually(lambda: not processes_with(str(folder)), "all processes of the cluster end")


def _make_environment(folder: Path) -> Path:
    """A Python with pyarrow only."""
    venv.create(folder, with_pip=False, symlinks=True)
    link_packages(next((folder / "lib").glob("python*/site-packages")))
    python = folder / "bin" / "python"
    code = "import importlib.util as u; print(*(u.find_spec(n) is None for n in {0!r}))"
    names = ("dzflow", "spark", "msgspec", "lark", "pyspark", "pyarrow")
    shown = subprocess.run(
        [python, "-c", code.format(names)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"]},  # without the PYTHONPATH of a developer
    )
    assert shown.stdout.split() == ["True"] * 5 + ["False"]
    return python


@contextmanager
def _daemon(folder: Path, name: str, *words: str) -> Iterator[None]:
    """A part of the cluster, as long as the block lasts."""
    environment = {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOG_DIR": str(folder),
        **JAVA,
    }
    if java := os.environ.get("JAVA_HOME"):
        environment["JAVA_HOME"] = java
    command = [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
    with (folder / f"{name}-{len(words)}.log").open("ab") as log:
        process = subprocess.Popen(
            [*map(str, command), "--host", _LOOPBACK, *words],
            env=environment,
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((_LOOPBACK, port)) == 0
