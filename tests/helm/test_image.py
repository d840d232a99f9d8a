"""The image without Docker: its steps are run in a folder as root, and the result starts there.

What is left out: the steps that only fetch (Debian's Java, Go modules of etcd). etcd and the C
libraries are those of this machine.
"""

import re

import pytest
import yaml

from dzflow.cli import CONTROL_PLANE
from tests.helm.chroot import USER, Chroot, missing, terminate
from tests.helm.dockerfile import stages
from tests.helm.tool import CHART, ROOT

_SECONDS = 300.0

needs_root = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@needs_root
def test_the_image_has_what_the_chart_runs(image: Chroot) -> None:
    for command in (
        ["dzflow", "up", "--help"],
        ["dzflow", "etcd", "secure", "--help"],
        ["ray", "--help"],
    ):
        process = image.start(command, stages()["dzflow"].variables)
        said, _ = process.communicate(timeout=_SECONDS)
        assert process.returncode == 0, said


@needs_root
def test_the_whole_service_starts_from_the_image_and_ends_in_order(image: Chroot) -> None:
    """As a user without a name, on a read-only root, with /tmp and /data to write to."""
    words = ["dzflow", "up", "--port", "0", "--topology", "line:3", "--data-dir", "/data/dzflow"]
    process = image.start(words, {**stages()["dzflow"].variables, "COLUMNS": "200"})
    with process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C stops everything" in line:
                terminate(process)
    text = "".join(said)
    assert "dzflow is ready" in text, text
    assert re.search(r"http://127\.0\.0\.1:\d+/dashboard", text)
    assert process.returncode == 0, text


def test_the_build_copies_every_package() -> None:
    copied = {words[0] for words in stages()["build"].all("COPY")}
    assert {"dzflow", *CONTROL_PLANE, "requirements", "docker"} <= copied
    allowed = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    sources = {each for words in stages()["build"].all("COPY") for each in words[:-1]}
    assert {f"!{each}" for each in sources} <= set(allowed)


def test_everything_that_is_installed_is_pinned_by_hashes() -> None:
    script = (ROOT / "docker" / "build.sh").read_text()
    files = re.findall(r"install [^\n]*?(?:\\\n[^\n]*?)?-r (requirements/\S+)", script)
    assert set(files) == {f"requirements/{name}.txt" for name in ("lock", "run", "otel", "spark")}
    for line in script.replace("\\\n", " ").splitlines():
        if " install " in line and "-r requirements/" in line:
            assert "--require-hashes" in line


def test_images_run_as_the_user_of_the_chart() -> None:
    user = yaml.safe_load((CHART / "values.yaml").read_text())["podSecurity"]["user"]
    for name in ("dzflow", "spark"):
        assert stages()[name].all("USER")[-1] == [f"{user}:{user}"]
    assert user == USER


def test_names_of_images_are_those_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = (ROOT / "docker" / "Dockerfile").read_text()
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for target, image in (("dzflow", values["image"]), ("spark", values["spark"]["image"])):
        assert f"--target {target} -t {image['repository']}:{version}" in text
