"""Wrong values are refused with a message that says what to do; files that are made are current."""

import json
from typing import Any

import pytest
import yaml

from tests.helm.readme import NoComment, made_files, values
from tests.helm.tool import CHART, ROOT, helm, needs_helm, of_kind, render, template


@needs_helm
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["etcd.replicas=2"], "'/etcd/replicas': value must be one of 1, 3"),
        (["api.replica=3"], "additional properties 'replica' not allowed"),
        (["dataPlane=ovs"], "'/dataPlane': value must be one of"),
        (["configurators.count=0"], "'/configurators/count'"),
        (["configurators.count=many"], "'/configurators/count'"),
        (["topology=mesh:3"], "'/topology'"),
        (["secrets.operatorTokens={short}"], "'/secrets/operatorTokens/0'"),
        (["secrets.operatorTokens={two-tokens\\,that-are-one}"], "'/secrets/operatorTokens/0'"),
        (
            ["secrets.existingSecret=a", "secrets.operatorTokens={a-token-of-an-operator}"],
            "put those of operatorTokens and hostTokens into it",
        ),
        (
            ["secrets.existingSecret=a", "secrets.hostTokens.h1=a-token-of-the-host-h1"],
            "put those of operatorTokens and hostTokens into it",
        ),
        (["podSecurity.user=0"], "'/podSecurity/user'"),
        (["image.digest=sha256:1234"], "'/image/digest'"),
        (["etcd.persistence.size=ten"], "'/etcd/persistence/size'"),
        (["traces.storage.address=s3://KEY:SECRET@bucket"], "'/traces/storage/address'"),
        (["api.resources.limits.cpu=1", "api.resources.limits.memory=null"], "memory"),
        (["dataPlane=external"], "southbound.tls.allowPlain=true"),
        (["dataPlane=onos", "southbound.replicas=2"], "southbound.replicas: with dataPlane=onos"),
        (["etcd.enabled=false"], "etcd.external.endpoints: name the members"),
        (["etcd.external.endpoints={a:2379}"], "only used with etcd.enabled=false"),
        (
            ["etcd.enabled=false", "etcd.external.endpoints={a:2379}"],
            "etcd.external.plain=true in a network that you trust",
        ),
        (["etcd.persistence.size=7Gi"], "at least twice etcd.quota"),
        (["dataPlane=onos"], "network: say what your network is like"),
        (
            ["dataPlane=external", "southbound.tls.secret=a", "settings.discovery.links=off"],
            "network: say what your network is like",
        ),
        (
            ["dataPlane=onos", "topology=line:3", "settings.plan=legs"],
            "settings.plan: with dataPlane=onos it is lpm",
        ),
        (["etcd.tls.secret=a"], "secret and clientSecret belong together"),
        (["ray.mode=external"], "ray.external.address: name the cluster"),
        (["ray.mode=plain", "ray.worker.maxReplicas=3"], "only KubeRay can add workers"),
        (["ray.worker.maxReplicas=1", "ray.worker.replicas=2"], "smaller than ray.worker.replicas"),
        (["configurators.count=5"], "raise ray.worker.replicas"),
        (["api.ingress.enabled=true"], "api.ingress.host: the Ingress needs the name"),
        (
            ["api.autoscaling.enabled=true", "api.autoscaling.minReplicas=9"],
            "larger than api.autoscaling.maxReplicas",
        ),
        (["spark.mode=cronjob"], "traces.to: the Spark job reads traces"),
        (["traces.to=storage"], "traces.storage.address: name the storage"),
        (["settings.balancing.mod=apply"], "additional properties 'mod' not allowed"),
        (["settings.balancing.mode=on"], "'/settings/balancing/mode': value must be one of 'off'"),
        (["settings.limits.host_rate=many"], "'/settings/limits/host_rate'"),
        (["settings.trees=0"], "'/settings/trees'"),
        (["settings.topology=line:3"], "settings.topology: the chart sets it; use topology"),
        (["settings.listen=::"], "settings.listen: the chart sets it"),
        (["settings.etcd.password=secret"], "settings.etcd.password"),
        (["settings.times.drain=1"], "settings.times.drain"),
    ],
    ids=lambda given: given[-1] if isinstance(given, list) else "",
)
def test_wrong_values_are_refused_with_a_message_that_helps(given: list[str], said: str) -> None:
    done = template(*(word for each in given for word in ("--set", each)))
    assert done.returncode == 1
    assert said in done.stderr


@needs_helm
@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_the_sizes_of_the_page_are_values_that_the_chart_accepts(size: str) -> None:
    """The column of a size, as values; the limits of memory of the defaults leave room for it."""
    given = _column(size)
    done = template("--set", "ray.mode=plain", *(w for each in given for w in ("--set", each)))
    assert done.returncode == 0, done.stderr
    assert len(given) > 12
    for each in yaml.safe_load_all(done.stdout):
        pod = (each or {}).get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            asked = container["resources"]["requests"]["memory"]
            most = container["resources"]["limits"]["memory"]
            assert _bytes(asked) <= _bytes(most), container["name"]


def _column(size: str) -> list[str]:
    """Values in the form of `--set`, from the table in docs/how-to/deploy.md."""
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    table = page.partition("\n| | small | medium | large |\n")[2].partition("\n\n")[0]
    found = []
    for line in table.splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        value = cells[["small", "medium", "large"].index(size)]
        match name.split("`"):
            case ["", path, ": replicas, cpus"]:
                replicas, cpus = value.split(", ")
                found += [f"{path}.replicas={replicas}", f"{path}.cpus={cpus}"]
            case ["", path, ", requests"]:
                cpu, memory = value.split(", ")
                found += [f"{path}.requests.cpu={cpu}", f"{path}.requests.memory={memory}"]
            case ["", path, ""]:
                found.append(f"{path}={value}")
    return found


def _bytes(quantity: str) -> int:
    return int(quantity[:-2]) << {"Mi": 20, "Gi": 30}[quantity[-2:]]


@needs_helm
def test_an_old_kubernetes_is_refused() -> None:
    done = template("--kube-version", "1.27.0")
    assert done.returncode == 1
    assert "requires kubeVersion" in done.stderr


@needs_helm
def test_an_existing_secret_is_used_instead_of_one_that_is_made() -> None:
    assert "dzflow-secrets" not in of_kind(render("external"), "Secret")
    assert not any("secrets" in name for name in of_kind(render("external"), "Secret"))


@needs_helm
def test_generated_tokens_are_long_and_different() -> None:
    (secret,) = (
        each
        for name, each in of_kind(render("minimal"), "Secret").items()
        if name == "dz-dzflow-secrets"
    )
    data = secret["data"]
    assert all(len(value) >= 32 for value in data.values())
    assert data["operator-token"] == data["operator-tokens"]
    assert len(set(data.values())) == len(data) - 1
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


@needs_helm
def test_the_chart_is_packed_with_everything_that_it_renders(tmp_path: Any) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (packed,) = tmp_path.glob("*.tgz")
    shown = helm("template", "dz", str(packed), "--set", "monitoring.dashboard.enabled=true")
    assert shown.returncode == 0, shown.stderr
    assert "dzflow.json" in shown.stdout


def test_made_files_of_the_chart_are_current() -> None:
    old = [
        str(path.relative_to(ROOT)) for path, text in made_files().items() if not _is(path, text)
    ]
    assert old == [], "run `make chart`"


def _is(path: Any, text: str) -> bool:
    return bool(path.exists() and path.read_text() == text)


def test_the_schema_knows_exactly_the_values_that_exist() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    assert list(_differences(schema, given, "")) == []


def _differences(schema: dict[str, Any], given: Any, path: str) -> Any:
    if schema.get("additionalProperties") is not False:
        return
    names = set(schema["properties"]) - {"global"}
    if path == "settings.":  # dzflow knows its defaults
        return
    yield from (f"{path}{name}" for name in names ^ set(given))
    for name in names & set(given):
        if isinstance(given[name], dict):
            yield from _differences(schema["properties"][name], given[name], f"{path}{name}.")


def test_a_value_without_a_comment_is_noticed() -> None:
    with pytest.raises(NoComment, match=r"api\.port"):
        list(values("# The API.\napi:\n  # How many.\n  replicas: 1\n  port: 1\n"))


def test_comments_become_descriptions() -> None:
    found = list(values("# The API.\napi:\n  # How\n  # many.\n  replicas: 1\n"))
    assert [(each.path, each.comment) for each in found] == [
        ("api", "The API."),
        ("api.replicas", "How many."),
    ]
    assert found[1].default == 1


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in project
