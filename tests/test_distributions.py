"""The distributions `dzflow` and `dzflow-control`, built and installed in clean environments."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dzflow.cli import CONTROL_PLANE

ROOT = Path(__file__).parents[1]
TIMEOUT = 300
# Packages that only some parts of the control plane may import, and that need not be installed.
EXTRAS = {"spark": ("py4j", "pyspark"), "bench": ("duckdb", "numpy")}


class Wheel:
    """A wheel file and what it says of itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.files = set(archive.namelist())
            name = next(file for file in self.files if file.endswith(".dist-info/METADATA"))
            self.metadata: Message = Parser().parsestr(archive.read(name).decode())

    @property
    def top_level(self) -> set[str]:
        """The top-level packages that the wheel installs."""
        roots = {file.partition("/")[0] for file in self.files}
        return {root for root in roots if not root.endswith(".dist-info")}

    @property
    def requirements(self) -> list[Requirement]:
        """What the wheel requires without any of its extras."""
        return required(self.metadata.get_all("Requires-Dist") or [])

    @property
    def requires(self) -> dict[str, str]:
        """The required distributions, each with its version specifier."""
        return {one.name: str(one.specifier) for one in self.requirements}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    """Both wheels by name, built from a copy without the leftovers of other builds."""
    source = tmp_path_factory.mktemp("source")
    for folder in ("dzflow", *CONTROL_PLANE):
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source / file)
    built = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", built]
    run([*pip, *options, source / "dzflow", source])
    found = [Wheel(path) for path in built.glob("*.whl")]
    return {str(wheel.metadata["Name"]): wheel for wheel in found}


def run(command: list[object]) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def required(lines: list[str], extra: str = "") -> list[Requirement]:
    """The requirements that hold on this machine, without any extra or with the given one."""
    found = [Requirement(line) for line in lines]
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]


def dependencies(requirement: Requirement) -> set[str]:
    """A distribution of this environment with everything that it and its extras require."""
    found: set[tuple[str, str]] = set()
    missing = [requirement]
    while missing:
        one = missing.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) not in found:
                found.add((one.name, extra))
                missing += required(distribution(one.name).requires or [], extra)
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def host(wheels: dict[str, Wheel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the host's wheel and its dependencies, nothing else."""
    return installed(tmp_path_factory.mktemp("host"), [wheels["dzflow"]])


@pytest.fixture(scope="module")
def control(wheels: dict[str, Wheel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with both wheels and their dependencies, nothing else."""
    both = [wheels["dzflow"], wheels["dzflow-control"]]
    return installed(tmp_path_factory.mktemp("control"), both)


def installed(folder: Path, wheels: list[Wheel]) -> Path:
    """The commands of a new environment with these wheels and their dependencies."""
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    packages = next((folder / "lib").glob("python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    run([*pip, "install", *options, *(wheel.path for wheel in wheels)])
    # The dependencies are linked from this environment, which is quicker than installing them.
    own = {str(wheel.metadata["Name"]) for wheel in wheels}
    needed = [one for wheel in wheels for one in wheel.requirements if one.name not in own]
    for requirement in needed:
        for one in dependencies(requirement):
            for file in distribution(one).files or []:
                root = file.parts[0]
                target = Path(str(distribution(one).locate_file(root)))
                if root not in ("..", "__pycache__") and not (packages / root).exists():
                    (packages / root).symlink_to(target)
    return folder / "bin"


def test_the_hosts_wheel_has_one_top_level_package(wheels: dict[str, Wheel]) -> None:
    assert wheels["dzflow"].top_level == {"dzflow"}


def test_the_control_planes_wheel_has_all_the_others(wheels: dict[str, Wheel]) -> None:
    assert wheels["dzflow-control"].top_level == set(CONTROL_PLANE)


def test_no_module_and_no_data_file_is_left_out(wheels: dict[str, Wheel]) -> None:
    for name, folders in (("dzflow", ("dzflow",)), ("dzflow-control", CONTROL_PLANE)):
        modules = {
            str(path.relative_to(ROOT))
            for folder in folders
            for path in (ROOT / folder).rglob("*.py")
            if "build" not in path.relative_to(ROOT).parts
        }
        assert modules <= wheels[name].files
    assert {"dzflow/expr.lark", "dzflow/py.typed"} <= wheels["dzflow"].files
    etcd = "configurators/store/server/etcdbuild"
    assert {f"{etcd}/{name}" for name in ("main.go", "go.mod", "go.sum")} <= (
        wheels["dzflow-control"].files
    )
    monitoring = {"monitor/grafana/dzflow.json", "monitor/alerts/dzflow.yaml"}
    assert monitoring <= wheels["dzflow-control"].files


def test_a_host_needs_nothing_of_the_control_plane(wheels: dict[str, Wheel]) -> None:
    assert set(wheels["dzflow"].requires) == {"httpx", "lark", "msgspec", "rich", "typer"}
    assert not wheels["dzflow"].metadata.get_all("Provides-Extra")


def test_the_control_plane_requires_the_same_version_of_the_hosts_part(
    wheels: dict[str, Wheel],
) -> None:
    version = wheels["dzflow"].metadata["Version"]
    assert wheels["dzflow-control"].metadata["Version"] == version
    assert wheels["dzflow-control"].requires["dzflow"] == f"=={version}"


def test_a_host_uses_the_sdk_and_the_command_without_the_control_plane(host: Path) -> None:
    program = f"""
import sys
from dzflow import AsyncControlPlane, ControlPlane
from dzflow.filters import parse_filter
from dzflow.space import Space
space = Space.from_json("s", {{"attributes": [{{"name": "p", "type": "int", "min": 0, "max": 9}}]}})
assert parse_filter(space, "p > 3").matches(space.keys({{"p": 4}}))
ControlPlane("http://localhost:8080", host="h1").close()
assert not set(sys.modules) & set({CONTROL_PLANE!r})
"""
    run([host / "python", "-I", "-c", program])
    assert "subscribe" in run([host / "python", "-I", host / "dzflow", "--help"])


@pytest.mark.parametrize("words", [["up"], ["lab", "up"], ["bench", "engine"]])
def test_a_command_of_the_control_plane_says_what_to_install(host: Path, words: list[str]) -> None:
    done = subprocess.run(
        [host / "python", "-I", host / "dzflow", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 1
    assert "pip install dzflow-control" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_control_planes_wheel_works_beside_the_hosts(
    host: Path, wheels: dict[str, Wheel], tmp_path: Path
) -> None:
    target = tmp_path / "control"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--no-index", "--target", target, wheels["dzflow-control"].path])
    program = f"""
import sys
sys.path[:0] = [{str(target)!r}]
from sdn.network.topologies import topology
assert len(topology("line:3").switches) == 3
"""
    run([host / "python", "-I", "-c", program])


def test_every_module_of_the_control_plane_can_be_imported(control: Path) -> None:
    program = f"""
import importlib
import pkgutil

def fail(name):
    raise ImportError(name)

for root in {CONTROL_PLANE!r}:
    package = importlib.import_module(root)
    for module in pkgutil.walk_packages(package.__path__, root + ".", onerror=fail):
        if not module.name.endswith(".__main__"):
            try:
                print(importlib.import_module(module.name).__file__)
            except ModuleNotFoundError as error:
                # Extras that are not installed here: only the Spark jobs and their benchmark may
                # import these.
                if error.name.partition(".")[0] not in {EXTRAS!r}.get(root, ()):
                    raise
"""
    files = run([control / "python", "-I", "-c", program]).splitlines()
    assert len(files) > 100
    assert all(Path(file).is_relative_to(control.parent) for file in files)


def test_the_control_planes_command_starts(control: Path) -> None:
    assert "--port" in run([control / "python", "-I", control / "dzflow", "up", "--help"])


def test_without_its_extra_a_spark_job_says_what_to_install(control: Path) -> None:
    command = [control / "python", "-I", control / "dzflow", "trace", "report", "."]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 1
    assert "dzflow-control[spark]" in " ".join(done.stderr.split())


def test_the_requirements_pin_all_dependencies() -> None:
    to_run, to_develop = (
        set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("run.txt", "dev.txt")
    )
    hosts = tomllib.loads((ROOT / "dzflow/pyproject.toml").read_text())["project"]
    control = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {one.name for one in required(hosts["dependencies"] + control["dependencies"])}
    assert needed - {"dzflow"} <= to_run <= to_develop
    assert {one.name for one in required(control["optional-dependencies"]["dev"])} <= to_develop
    assert "dzflow" not in to_develop


def test_what_builds_and_locks_the_projects_is_pinned_by_hash() -> None:
    (pinned,) = re.findall(r"^setuptools==(\S+)", locked("run.txt"), re.MULTILINE)
    assert f"\nsetuptools=={pinned} \\\n    --hash=sha256:" in locked("run.txt")
    assert f"\nsetuptools=={pinned} \\\n    --hash=sha256:" in locked("dev.txt")
    for project in ("pyproject.toml", "dzflow/pyproject.toml"):
        build = tomllib.loads((ROOT / project).read_text())["build-system"]
        assert build["requires"] == [f"setuptools=={pinned}"]
    assert re.search(r"^uv==\S+ \\\n    --hash=sha256:", locked("lock.txt"), re.MULTILINE)


def test_make_installs_nothing_that_is_not_pinned() -> None:
    """Every call of pip gets hashes to check, or files of ours and no isolated build."""
    makefile = (ROOT / "Makefile").read_text()
    calls = [line for line in makefile.splitlines() if re.search(r"-m pip (install|down)", line)]
    calls += [line for line in makefile.splitlines() if "@$(PIP)" in line]
    definition = next(line for line in calls if line.startswith("PIP "))
    calls.remove(definition)
    assert len(calls) >= 4
    for line in calls:
        ours = "--no-deps --no-build-isolation" in line and "-r " not in line
        assert "--require-hashes" in line or ours, line


def locked(name: str) -> str:
    return (ROOT / "requirements" / name).read_text()
