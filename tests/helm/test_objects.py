"""What the rendered objects say fits together: labels, references, ports, and rights."""

import re
from collections.abc import Iterator
from importlib.metadata import version as installed
from typing import Any

import pytest
import yaml

from tests.helm.pods import Pod, pods
from tests.helm.tool import (
    CASES,
    GIVEN,
    Manifest,
    needs_helm,
    of_kind,
    render,
    template,
    values_file,
)

pytestmark = needs_helm


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether labels have all that a selector asks for."""
    return selector.items() <= labels.items()


def named_by(pod: Pod, kind: str) -> Iterator[tuple[str, str | None, bool]]:
    """The Secrets or ConfigMaps that a pod refers to: name, key, whether it may be missing."""
    reference, key_reference, volume, member = {
        "Secret": ("secretRef", "secretKeyRef", "secret", "secretName"),
        "ConfigMap": ("configMapRef", "configMapKeyRef", "configMap", "name"),
    }[kind]
    for container in pod.containers:
        for variable in container.get("env", []):
            if key := variable.get("valueFrom", {}).get(key_reference):
                yield key["name"], key["key"], key.get("optional", False)
        for source in container.get("envFrom", []):
            if reference in source:
                yield source[reference]["name"], None, False
    for each in pod.spec.get("volumes", []):
        if volume in each:
            items = each[volume].get("items") or [{"key": None}]
            for item in items:
                yield each[volume][member], item["key"], False
    if kind == "Secret":
        for each in pod.spec.get("imagePullSecrets", []):
            yield each["name"], None, False


@pytest.mark.parametrize("case", CASES)
def test_selectors_match_the_labels_of_their_own_pods_only(case: str) -> None:
    for kind in ("Deployment", "StatefulSet"):
        for name, each in of_kind(render(case), kind).items():
            selector = each["spec"]["selector"]["matchLabels"]
            chosen = {(p.kind, p.name) for p in pods(render(case)) if matches(selector, p.labels)}
            assert chosen == {(kind, name)}


@pytest.mark.parametrize("case", CASES)
def test_every_secret_and_every_key_that_a_pod_needs_exists(case: str) -> None:
    secrets = of_kind(render(case), "Secret")
    given = GIVEN.get(case, set())
    used = set()
    for pod in pods(render(case)):
        for name, key, optional in named_by(pod, "Secret"):
            used.add(name)
            if name in secrets:
                assert optional or key is None or key in secrets[name]["data"], (pod.name, key)
            else:
                assert name in given, f"{pod.name} needs the Secret {name}"
    ingresses = of_kind(render(case), "Ingress").values()
    used |= {tls["secretName"] for each in ingresses for tls in each["spec"].get("tls", [])}
    assert used >= given, "a given Secret is not used"
    assert set(secrets) <= used, "a Secret is made that nobody uses"


@pytest.mark.parametrize("case", CASES)
def test_every_config_map_account_and_claim_that_a_pod_needs_exists(case: str) -> None:
    objects = render(case)
    maps = of_kind(objects, "ConfigMap")
    for pod in pods(objects):
        for name, key, _ in named_by(pod, "ConfigMap"):
            assert name in maps
            assert key is None or key in maps[name]["data"]
        assert pod.spec["serviceAccountName"] in {*of_kind(objects, "ServiceAccount"), "existing"}
        for volume in pod.spec.get("volumes", []):
            if claim := volume.get("persistentVolumeClaim"):
                made = of_kind(objects, "PersistentVolumeClaim")
                assert claim["claimName"] in {*made, "traces"}


@pytest.mark.parametrize("case", CASES)
def test_every_mount_has_a_volume_and_every_volume_a_mount(case: str) -> None:
    for pod in pods(render(case)):
        claims = of_kind(render(case), "StatefulSet").get(pod.name, {}).get("spec", {})
        made = {each["metadata"]["name"] for each in claims.get("volumeClaimTemplates", [])}
        volumes = {each["name"] for each in pod.spec["volumes"]} | made
        mounts = {m["name"] for c in pod.containers for m in c.get("volumeMounts", [])}
        if pod.role == "ray-head":
            mounts |= set(autoscaler_mounts(render(case)))
        assert mounts == volumes, pod.name


@pytest.mark.parametrize("case", CASES)
def test_every_file_that_settings_and_variables_name_is_mounted(case: str) -> None:
    """A file below /secrets or /etc/dzflow comes from a Secret or the ConfigMap."""
    objects = render(case)
    for pod in pods(objects):
        for container in pod.containers:
            texts = [*container.get("command", []), *container.get("args", [])]
            texts += [str(each.get("value", "")) for each in container.get("env", [])]
            mounts = [m["mountPath"] for m in container.get("volumeMounts", [])]
            if "/etc/dzflow" in mounts and pod.role not in ("ray-head", "ray-worker"):
                settings = of_kind(objects, "ConfigMap")["dz-dzflow-settings"]["data"]
                texts.append(settings["dzflow.yaml"])
            for path in re.findall(r"/(?:secrets|etc/dzflow)/[\w./-]+", "\n".join(texts)):
                if pod.role == "etcd-user" and "/streams-tls/" in path:
                    continue  # it opens no stream
                assert any(path.startswith(f"{mount}/") for mount in mounts), (pod.role, path)


@pytest.mark.parametrize("case", CASES)
def test_services_lead_to_ports_that_their_pods_have(case: str) -> None:
    objects = render(case)
    for name, service in of_kind(objects, "Service").items():
        selector = dict(service["spec"]["selector"])
        selector.pop("statefulset.kubernetes.io/pod-name", None)
        chosen = [pod for pod in pods(objects) if matches(selector, pod.labels)]
        assert len(chosen) == 1, name
        for port in service["spec"]["ports"]:
            assert chosen[0].port(port["targetPort"])
            if service["spec"].get("clusterIP") == "None":
                assert chosen[0].port(port["targetPort"]) == port["port"], (
                    "no Service translates it"
                )


@pytest.mark.parametrize("case", CASES)
def test_probes_name_ports_that_their_containers_have(case: str) -> None:
    for pod in pods(render(case)):
        for container in pod.containers:
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container.get(name, {})
                handlers = [probe[key] for key in ("httpGet", "tcpSocket", "grpc") if key in probe]
                for handler in handlers:
                    number = pod.port(handler["port"])
                    declared = {port["containerPort"] for port in container["ports"]}
                    assert number in declared


@pytest.mark.parametrize("case", CASES)
def test_what_runs_for_long_has_all_three_probes(case: str) -> None:
    for pod in pods(render(case)):
        if pod.kind in ("Deployment", "StatefulSet", "RayCluster"):
            for container in pod.containers:
                assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


@pytest.mark.parametrize("case", CASES)
def test_pods_fulfil_pod_security_restricted(case: str) -> None:
    """As the Pod Security Standards say, and the root file system is read-only."""
    allowed = {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
        "projected", "secret",
    }  # fmt: skip
    for pod in pods(render(case)):
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        for container in pod.containers:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in own
        for volume in pod.spec["volumes"]:
            assert set(volume) - {"name"} <= allowed


@pytest.mark.parametrize("case", CASES)
def test_no_pod_gets_rights_in_the_cluster_or_variables_of_services(case: str) -> None:
    """Kubernetes would set DZFLOW_PORT for a Service named `dzflow`: a setting of ours."""
    for pod in pods(render(case)):
        if pod.kind != "ScheduledSparkApplication":  # the operator decides there
            assert pod.spec["automountServiceAccountToken"] is False
            assert pod.spec["enableServiceLinks"] is False
    kinds = {each["kind"] for each in render(case)}
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & kinds


def autoscaler_mounts(objects: tuple[Manifest, ...]) -> dict[str, str]:
    """What KubeRay mounts in the container of Ray's autoscaler, and where."""
    return {
        mount["name"]: mount["mountPath"]
        for each in of_kind(objects, "RayCluster").values()
        for mount in each["spec"].get("autoscalerOptions", {}).get("volumeMounts", [])
    }


def test_only_the_autoscaler_of_ray_has_the_token_of_a_service_account() -> None:
    """It asks the API server for workers; what Ray runs beside it must not be able to."""
    objects = render("full")
    (head,) = [pod for pod in pods(objects) if pod.role == "ray-head"]
    assert head.spec["serviceAccountName"] == "dz-dzflow-ray-head"
    others = {pod.spec["serviceAccountName"] for pod in pods(objects) if pod.role != "ray-head"}
    assert others == {"dz-dzflow"}, "KubeRay gives rights to that of the head"
    (volume,) = [each["name"] for each in head.spec["volumes"] if "projected" in each]
    at = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert autoscaler_mounts(objects)[volume] == at
    assert volume not in {m["name"] for c in head.containers for m in c["volumeMounts"]}


@pytest.mark.parametrize(
    ("scaled", "restarted"),
    [("configurators.count", {"dz-dzflow-configurators"}), ("southbound.replicas", set())],
)
def test_scaling_restarts_no_pod_that_need_not(scaled: str, restarted: set[str]) -> None:
    def templates(count: int) -> dict[str, Any]:
        return {
            each["metadata"]["name"]: each["spec"]["template"]
            for each in render("tls", "--set", f"{scaled}={count}")
            if each["kind"] in ("Deployment", "StatefulSet", "Job")
        }

    two, three = templates(2), templates(3)
    assert set(two) == set(three)
    assert {name for name in two if two[name] != three[name]} == restarted


def test_other_tokens_restart_the_pods_that_accept_them_and_no_other_ones() -> None:
    """They read the Secret when they start only."""

    def templates(token: str) -> dict[str, Any]:
        given = ("--set", f"secrets.operatorTokens={{{token}}}")
        return {
            each["metadata"]["name"]: each["spec"]["template"]
            for each in render("demo", *given)
            if each["kind"] in ("Deployment", "StatefulSet", "Job")
        }

    one, again = templates("a-token-of-someone"), templates("a-token-of-someone")
    other = templates("a-token-of-another")
    assert one == again
    changed = {name for name in one if one[name] != other[name]}
    assert changed == {"dz-dzflow-api", "dz-dzflow-dashboard"}
    assert "a-token-of-someone" not in yaml.safe_dump(one)


@pytest.mark.parametrize("case", CASES)
def test_every_container_asks_for_resources_and_is_limited_in_memory(case: str) -> None:
    for pod in pods(render(case)):
        for container in pod.containers:
            assert "memory" in container["resources"]["limits"], pod.name


@pytest.mark.parametrize("case", CASES)
def test_pods_have_time_to_drain(case: str) -> None:
    settings = settings_of(render(case))
    needed = settings["times"]["drain_delay"] + settings["times"]["drain"] + 10
    for pod in pods(render(case)):
        if pod.role in ("api", "dashboard", "southbound", "configurators", "network"):
            assert pod.spec["terminationGracePeriodSeconds"] >= needed


@pytest.mark.parametrize("case", CASES)
def test_disruption_budgets_choose_the_pods_of_one_role(case: str) -> None:
    for name, each in of_kind(render(case), "PodDisruptionBudget").items():
        selector = each["spec"]["selector"]["matchLabels"]
        chosen = [pod for pod in pods(render(case)) if matches(selector, pod.labels)]
        assert len(chosen) == 1, name


def test_the_autoscaler_and_not_the_deployment_says_how_many_api_pods_there_are() -> None:
    deployment = of_kind(render("full"), "Deployment")["dz-dzflow-api"]
    scaler = of_kind(render("full"), "HorizontalPodAutoscaler")["dz-dzflow-api"]
    assert "replicas" not in deployment["spec"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == "dz-dzflow-api"


@pytest.mark.parametrize("case", ["full", "tls"])
def test_prometheus_scrapes_the_api_with_a_token_that_it_accepts(case: str) -> None:
    objects = render(case)
    (monitor,) = of_kind(objects, "ServiceMonitor").values()
    selector = monitor["spec"]["selector"]["matchLabels"]
    chosen = {
        name: each
        for name, each in of_kind(objects, "Service").items()
        if matches(selector, each["metadata"]["labels"])
    }
    assert set(chosen) == {"dz-dzflow-api"}
    (endpoint,) = monitor["spec"]["endpoints"]
    ports = [port["name"] for port in chosen["dz-dzflow-api"]["spec"]["ports"]]
    assert [endpoint["port"]] == ports
    token = endpoint["authorization"]["credentials"]
    assert token["key"] in of_kind(objects, "Secret")[token["name"]]["data"]
    if case == "tls":
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == "dz-dzflow-api"
        assert endpoint["tlsConfig"]["ca"]["secret"]["name"] in GIVEN["tls"]
    assert monitor["spec"]["jobLabel"] in monitor["metadata"]["labels"]


def test_each_southbound_pod_has_an_address_of_its_own() -> None:
    services = of_kind(render("external"), "Service")
    for number in range(2):
        spec = services[f"dz-dzflow-southbound-{number}"]["spec"]
        pod = spec["selector"]["statefulset.kubernetes.io/pod-name"]
        assert pod == f"dz-dzflow-southbound-{number}"
        assert spec["ports"][0]["nodePort"] == 30653 + number
        assert spec["externalTrafficPolicy"] == "Local"


def test_the_members_of_etcd_know_each_other_by_names_in_their_certificates() -> None:
    (pod,) = [pod for pod in pods(render("plain")) if pod.role == "etcd"]
    command = " ".join(pod.containers[0]["command"])
    for number in range(3):
        host = f"dz-dzflow-etcd-{number}.dz-dzflow-etcd.net.svc"
        assert f"dz-dzflow-etcd-{number}=https://{host}:2380" in command
        assert f"{host}:2379" in settings_of(render("plain"))["etcd"]["endpoints"]


@pytest.mark.parametrize("case", CASES)
def test_the_head_of_ray_keeps_its_cluster_on_a_volume_of_its_own_and_nodes_wait_for_it(
    case: str,
) -> None:
    """Otherwise all configurators would restart whenever the head is replaced."""
    by_role = {pod.role: pod for pod in pods(render(case))}
    claims = of_kind(render(case), "PersistentVolumeClaim")
    kept = "dz-dzflow-ray-head" in claims
    assert kept == (case not in ("single", "external"))
    for role in {"ray-head", "ray-worker"} & by_role.keys():
        pod = by_role[role]
        (container,) = pod.containers
        env = {each["name"]: each.get("value") for each in container["env"]}
        claimed = [each["persistentVolumeClaim"]["claimName"] for each in pod.spec["volumes"]
                   if "persistentVolumeClaim" in each]  # fmt: skip
        is_head = role == "ray-head"
        assert claimed == (["dz-dzflow-ray-head"] if kept and is_head else [])
        assert env.get("RAY_gcs_storage") == ("rocksdb" if kept and is_head else None)
        assert env.get("RAY_gcs_rpc_server_reconnect_timeout_s") == ("600" if kept else None)
        if kept and is_head:
            (at,) = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "cluster"]
            assert env["RAY_gcs_storage_path"] == f"{at}/{installed('ray')}"


def test_an_upgrade_replaces_the_pods_of_kuberay() -> None:
    """KubeRay leaves pods alone whose template has changed unless it is told to replace them."""
    (cluster,) = of_kind(render("minimal"), "RayCluster").values()
    assert cluster["spec"]["upgradeStrategy"] == {"type": "Recreate"}
    assert cluster["spec"]["rayVersion"] == installed("ray")


@pytest.mark.parametrize("case", ["demo", "full", "external", "tls"])
def test_the_user_of_the_spark_job_has_a_name(case: str) -> None:
    """Java and Hadoop do not start for a user that /etc/passwd does not know."""
    (pod,) = [pod for pod in pods(render(case)) if pod.role == "spark"]
    (mount,) = [m for m in pod.containers[0]["volumeMounts"] if m["mountPath"] == "/etc/passwd"]
    (name,) = [v["configMap"]["name"] for v in pod.spec["volumes"] if v["name"] == mount["name"]]
    lines = of_kind(render(case), "ConfigMap")[name]["data"][mount["subPath"]].splitlines()
    users = {line.split(":")[2]: line.split(":")[5] for line in lines}
    assert users[str(pod.spec["securityContext"]["runAsUser"])] == "/tmp"  # noqa: S108 - of the pod


def test_a_run_of_the_spark_job_looks_at_the_traces_of_a_window() -> None:
    (pod,) = [pod for pod in pods(render("tls")) if pod.role == "spark"]
    assert "--since=-86400" in pod.containers[0]["command"]
    quarter = template("-f", values_file("tls"), "--set", "spark.window=7776000").stdout
    (job,) = of_kind(tuple(filter(None, yaml.safe_load_all(quarter))), "CronJob").values()
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert "--since=-7776000" in container["command"]


def test_secrets_are_in_no_config_map_and_no_command() -> None:
    objects = render("full")
    for each in objects:
        if each["kind"] != "Secret":
            assert "a-token-of-the-first-operator" not in yaml.safe_dump(each)


def settings_of(objects: tuple[Manifest, ...]) -> dict[str, Any]:
    """The settings file."""
    data = of_kind(objects, "ConfigMap")["dz-dzflow-settings"]["data"]["dzflow.yaml"]
    found: dict[str, Any] = yaml.safe_load(data)
    return found
