"""Every role of dzflow accepts the settings and variables that its pod gets from the chart."""

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from api.start.settings.checks import check_settings
from api.start.settings.settings import Settings
from api.start.settings.sources import load
from tests.certificates import make_keys
from tests.helm.pods import Pod, pods
from tests.helm.settings_schema import settings_schema
from tests.helm.tool import CASES, needs_helm, of_kind, render

pytestmark = needs_helm

ROLES = ("api", "dashboard", "southbound", "configurators", "network")
_GIVEN = {"host-tokens": '{"h1": "a-token-of-the-host-h1"}'}


class Machine:
    """A folder with the files that a pod would have, in place of its mounts."""

    def __init__(self, case: str, folder: Path) -> None:
        self.objects = render(case)
        self.folder = folder
        self.secrets = of_kind(self.objects, "Secret")
        self._keys = make_keys(folder)

    def settings(self, pod: Pod) -> Settings:
        """The settings that the process of a pod reads."""
        (container,) = pod.containers
        for mount in container["volumeMounts"]:
            self._mount(pod, mount["name"], mount["mountPath"])
        written = self.folder / "etc/dzflow/dzflow.yaml"
        written.write_text(self._moved(written.read_text()))
        variables = {
            each["name"]: self._moved(self._value(each)) for each in container.get("env", [])
        }
        own = {name: value for name, value in variables.items() if name.startswith("DZFLOW_")}
        return load(written, {}, own)

    def _mount(self, pod: Pod, name: str, at: str) -> None:
        target = self.folder / at.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        volume = next(each for each in pod.spec["volumes"] if each["name"] == name)
        if "configMap" in volume:
            data = of_kind(self.objects, "ConfigMap")[volume["configMap"]["name"]]["data"]
            for file, text in data.items():
                (target / file).write_text(text)
        elif "secret" in volume:
            for file, content in self._secret(volume["secret"]["secretName"]).items():
                (target / file).write_bytes(content)
                os.chmod(target / file, 0o600)

    def _secret(self, name: str) -> dict[str, bytes]:
        if name in self.secrets:
            data = self.secrets[name]["data"]
            return {key: base64.b64decode(value) for key, value in data.items()}
        keys = self._keys
        return {
            "ca.crt": keys.authority.read_bytes(),
            "tls.crt": keys.certificate.read_bytes(),
            "tls.key": keys.key.read_bytes(),
            "ray-token": b"a-token-of-the-ray-cluster",
        }

    def _value(self, variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"]).replace("$(POD_IP)", "10.1.2.3")
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return {"status.podIP": "10.1.2.3", "metadata.name": "dz-dzflow-southbound-0"}[
                source["fieldRef"]["fieldPath"]
            ]
        reference = source["secretKeyRef"]
        if reference["name"] in self.secrets:
            data = self.secrets[reference["name"]]["data"]
            found = data.get(reference["key"])
            return base64.b64decode(found).decode() if found else "{}"
        return _GIVEN.get(reference["key"], f"a-secret-named-{reference['key']}")

    def _moved(self, text: str) -> str:
        """Paths below the pod's mounts become paths below the folder."""
        return re.sub(r"(?<![\w/])/(secrets|etc/dzflow|data)/", rf"{self.folder}/\1/", text)


@pytest.mark.parametrize("case", CASES)
def test_every_role_accepts_what_its_pod_says(case: str, tmp_path: Path) -> None:
    seen = set()
    for pod in pods(render(case)):
        if pod.role not in ROLES:
            continue
        (container,) = pod.containers
        assert container["command"][:4] == ["dzflow", "up", "--only", pod.role]
        folder = tmp_path / pod.role
        folder.mkdir()
        settings = Machine(case, folder).settings(pod)
        check_settings(settings, container["command"][3])
        seen.add(pod.role)
        assert settings.southbound_placed == "outside"
        if pod.role == "southbound":
            assert settings.southbound_id == "dz-dzflow-southbound-0"
            assert settings.streams.ports == (9650, 9650)
            assert settings.openflow.ports == (6653,)
            assert settings.openflow.advertise == "10.1.2.3"
        if pod.role in ("api", "dashboard"):
            assert settings.tokens.given
            assert settings.listen == "0.0.0.0"  # noqa: S104 - as the Service needs it
        else:
            assert not settings.tokens.given
    assert {"api", "southbound", "configurators"} <= seen


def test_without_a_description_of_the_network_switches_and_links_are_found(tmp_path: Path) -> None:
    pod = next(pod for pod in pods(render("tls")) if pod.role == "api")
    settings = Machine("tls", tmp_path).settings(pod)
    assert settings.discovers
    assert "topology" not in settings.model_fields_set, "it would be a network that is not there"


def test_settings_of_users_reach_the_service(tmp_path: Path) -> None:
    pod = next(pod for pod in pods(render("full")) if pod.role == "api")
    settings = Machine("full", tmp_path).settings(pod)
    assert settings.limits.host_rate == 100
    assert settings.balancing.mode == "apply"
    assert set(settings.tokens.hosts) == {"h1", "h2"}
    assert len(settings.tokens.operator) == 2


def test_the_ports_of_the_pods_are_those_of_the_settings(tmp_path: Path) -> None:
    machine = Machine("minimal", tmp_path)
    for pod in pods(render("minimal")):
        if pod.role in ("api", "southbound"):
            settings = machine.settings(pod)
            if pod.role == "api":
                assert pod.port("api") == settings.port
            else:
                assert pod.port("openflow") == settings.openflow.ports[0]
                assert pod.port("probes") == settings.probes.port
                assert settings.streams.ports is not None
                assert pod.port("streams") == settings.streams.ports[0]


def test_the_settings_file_is_one_that_dzflow_reads_without_secrets() -> None:
    data = of_kind(render("full"), "ConfigMap")["dz-dzflow-settings"]["data"]
    shown = yaml.safe_load(data["dzflow.yaml"])
    assert not {"tokens", "stream_token"} & set(shown)
    assert "password" not in shown["etcd"]


def test_the_quota_of_an_etcd_of_ones_own_is_a_setting(tmp_path: Path) -> None:
    given = ("--set", "settings.etcd.quota=8589934592")
    data = of_kind(render("external", *given), "ConfigMap")["dz-dzflow-settings"]["data"]
    (tmp_path / "dzflow.yaml").write_text(data["dzflow.yaml"])
    assert load(tmp_path / "dzflow.yaml", {}, {}).etcd.quota == 8589934592


def test_the_schema_of_settings_accepts_their_defaults() -> None:
    defaults = Settings().model_dump(mode="json", exclude={"permissions": {"rules"}})
    assert list(Draft202012Validator(settings_schema()).iter_errors(defaults)) == []


def test_large_numbers_of_users_stay_numbers(tmp_path: Path) -> None:
    """Helm reads numbers as floats, and could write them as such."""
    values = tmp_path / "values.yaml"
    values.write_text("settings: {log: {size: 50000000}}")
    data = of_kind(render("minimal", "--values", str(values)), "ConfigMap")
    (tmp_path / "dzflow.yaml").write_text(data["dz-dzflow-settings"]["data"]["dzflow.yaml"])
    assert load(tmp_path / "dzflow.yaml", {}, {}).log.size == 50_000_000
