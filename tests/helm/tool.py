"""The real Helm, the chart, and what it renders; each rendering is made once."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "dzflow"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*-values.yaml"))
"""The names of the values files, which all tests of renderings go through."""

GIVEN = {
    "full": {"openflow-tls", "dzflow-more-secrets", "dzflow-example", "registry"},
    "external": {"dzflow-secrets", "openflow-tls", "ray-token", "etcd-client", "bucket"},
    "tls": {"api-tls", "openflow-tls", "ray-tls", "streams-tls", "etcd-members", "etcd-clients"},
    "plain": {"onos-password"},
}
"""The Secrets that values files name, and that users make."""

RELEASE, NAMESPACE = "dz", "net"
_TIMEOUT = 120

Manifest = dict[str, Any]


@cache
def helm_path() -> str | None:
    """The Helm that `make helm` has built, or the one on the path."""
    built = ROOT / ".tools" / "helm"
    return str(built) if built.exists() else shutil.which("helm")


needs_helm = pytest.mark.skipif(
    helm_path() is None, reason="there is no Helm here; `make helm` builds one with Go"
)


def helm(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run Helm."""
    path = helm_path()
    assert path is not None
    return subprocess.run([path, *words], capture_output=True, text=True, timeout=_TIMEOUT)


def values_file(case: str) -> str:
    """The values file of a case."""
    return str(CHART / "ci" / f"{case}-values.yaml")


def template(*words: str) -> "subprocess.CompletedProcess[str]":
    """What `helm template` says to these options."""
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *words)


@cache
def render(case: str, *words: str) -> tuple[Manifest, ...]:
    """The objects of a case, with further options of Helm; do not change them."""
    done = template("--values", values_file(case), *words)
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def of_kind(objects: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    """The objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}
