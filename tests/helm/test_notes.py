"""The notes that Helm prints after an installation name what is there, and lead to the API."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.helm.tool import (
    CASES,
    CHART,
    NAMESPACE,
    RELEASE,
    helm,
    needs_helm,
    of_kind,
    render,
    values_file,
)

pytestmark = needs_helm

_KINDS = {
    "deployment": "Deployment",
    "deploy": "Deployment",
    "service": "Service",
    "secret": "Secret",
}
_GIVEN = {"external": {"dzflow-secrets"}, "tls": {"api-tls"}}


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart, with its notes as a part of an object: Helm shows them on a cluster only."""
    made = tmp_path_factory.mktemp("notes") / "dzflow"
    shutil.copytree(CHART, made)
    text = (made / "templates" / "NOTES.txt").read_text()
    (made / "templates" / "NOTES.txt").unlink()
    defined = f'{{{{- define "notes" -}}}}{text}{{{{- end -}}}}'
    (made / "templates" / "_notes.tpl").write_text(defined)
    shown = 'notes: |\n  {{- include "notes" . | nindent 2 }}\n'
    (made / "templates" / "notes.yaml").write_text(shown)
    return made


def notes(chart: Path, case: str, *words: str) -> str:
    """The notes of a case."""
    chosen = ("--values", values_file(case), "--show-only", "templates/notes.yaml", *words)
    done = helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, *chosen)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["notes"])


@pytest.mark.parametrize("case", CASES)
def test_what_the_notes_name_is_there(chart: Path, case: str) -> None:
    text = notes(chart, case)
    names = r"(dz-\S+|\S+-tls|dzflow-secrets)"
    named = re.findall(rf"\b({'|'.join(_KINDS)})[/ ]{names}", text)
    assert named
    for kind, name in named:
        there = {*of_kind(render(case), _KINDS[kind]), *_GIVEN.get(case, ())}
        assert name in there, (kind, name)
    assert f"-n {NAMESPACE} " in text


@pytest.mark.parametrize(
    ("case", "address"),
    [
        ("minimal", "http://localhost:8080"),
        ("full", "https://dzflow.example"),
        ("tls", "https://localhost:8080"),
    ],
)
def test_the_notes_lead_to_the_api(chart: Path, case: str, address: str) -> None:
    text = notes(chart, case)
    assert f"export DZFLOW_URL={address}\n" in text
    assert ("port-forward" in text) == ("localhost" in address)
    assert ("export DZFLOW_CA=" in text) == (case == "tls")


def test_the_notes_say_what_to_do_next_with_each_kind_of_network(chart: Path) -> None:
    assert "dzflow publish --host h2" in notes(chart, "minimal")
    assert "dzflow topology" in notes(chart, "tls")
    assert "dzflow topology" not in notes(chart, "full"), "the network is described"
    assert "ONOS" in notes(chart, "plain")


def test_the_notes_warn_of_what_is_lost_or_can_be_read(chart: Path) -> None:
    assert "WARNING: etcd.persistence.enabled is false" in notes(chart, "single")
    assert "the API speaks HTTP" in notes(chart, "minimal")
    assert not re.search("WARNING|Note:", notes(chart, "tls"))
    plain = ("--set", "southbound.tls.allowPlain=true")
    assert "WARNING: switches connect without TLS" in notes(chart, "tls", *plain)
