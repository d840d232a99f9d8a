"""A release of the chart on a real API server: what Helm does with it, and whether it is well."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.helm.cluster.control_plane import ControlPlane
from tests.helm.schemas import CUSTOM, is_custom
from tests.helm.tool import CHART, GIVEN, RELEASE, Manifest, render, values_file
from tests.service import eventually

INSTANCE = f"app.kubernetes.io/instance={RELEASE}"
_WAIT = ("--wait", "--wait-for-jobs", "--timeout", "120s")
_CLASSES = ("standard", "fast", "shared")
_VOLUMES = 8  # of each class; one that was released is not used again


class Release:
    """One release, in a namespace of its own, with the values of a case."""

    def __init__(self, cluster: ControlPlane, namespace: str, case: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.case = case

    def install(self) -> None:
        """Install it, and wait until everything is ready."""
        self._succeed("install", RELEASE, str(CHART), *self._values(), *_WAIT)

    def upgrade(self, *words: str, chart: str = str(CHART)) -> None:
        """Upgrade it with further options, and wait until everything is ready."""
        # Helm takes no values for those of the revision before.
        given = (*self._values(), "--reset-values", *words)
        self._succeed("upgrade", RELEASE, chart, *given, *_WAIT)

    def rollback(self, revision: int) -> None:
        """Roll back to a revision, and wait until everything is ready."""
        self._succeed("rollback", RELEASE, str(revision), *_WAIT)

    def test(self) -> None:
        """Run what `helm test` runs."""
        self._succeed("test", RELEASE, "--timeout", "60s")

    def uninstall(self) -> None:
        """Uninstall it, and wait until its objects are gone."""
        self._succeed("uninstall", RELEASE, "--wait", "--timeout", "120s")

    def try_install(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """What Helm says to an installation."""
        return self._helm("install", RELEASE, str(CHART), *self._values(), *words)

    def try_upgrade(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """What Helm says to an upgrade."""
        return self._helm("upgrade", RELEASE, str(CHART), *self._values(), *words)

    def revision(self) -> int:
        """The number of the current revision."""
        found = json.loads(self._helm("status", RELEASE, "-o", "json").stdout)
        return int(found["version"])

    def objects(self, kind: str) -> dict[str, Manifest]:
        """The objects of a kind that belong to the release, by name."""
        found = self.cluster.get(kind, "-n", self.namespace, "-l", INSTANCE)
        return {each["metadata"]["name"]: each for each in found}

    def pods(self) -> dict[str, Manifest]:
        """The pods that run, by name."""
        return {
            name: pod
            for name, pod in self.objects("pods").items()
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def ids(self, *without: str) -> set[str]:
        """The ids of the pods that run, but of those with certain roles."""
        return {
            pod["metadata"]["uid"]
            for pod in self.pods().values()
            if pod["metadata"]["labels"]["dzflow/role"] not in without
        }

    def settings(self) -> str:
        """The settings file that the pods get."""
        (found,) = (
            each["data"]["dzflow.yaml"]
            for each in self.objects("configmaps").values()
            if "dzflow.yaml" in each["data"]
        )
        return str(found)

    def state(self) -> dict[str, Any]:
        """What must outlive upgrades: the content of Secrets, and which volumes the claims have."""
        secrets = {name: each["data"] for name, each in self.objects("secrets").items()}
        return {"secrets": secrets, "claims": self.claims()}

    def claims(self) -> dict[str, tuple[str, str]]:
        """The claims, with their ids and volumes."""
        found = self.objects("persistentvolumeclaims")
        return {n: (c["metadata"]["uid"], c["spec"]["volumeName"]) for n, c in found.items()}

    def left(self) -> set[str]:
        """All objects that belong to the release, whatever their kind."""
        kinds = self.cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name")
        words = ["get", ",".join(kinds.split()), "-n", self.namespace, "-l", INSTANCE, "-o", "name"]
        return set(self.cluster.kubectl(*words).split())

    def check_left(self, kept: set[str]) -> None:
        """Wait until these objects are all that is left."""
        _eventually(lambda: sorted(self.left() ^ kept), "only what is kept is left")

    def problems(self) -> list[str]:
        """What is not ready, or does not lead to any pod."""
        return [*self._unready_sets(), *self._unready_claims(), *self._unused_selectors()]

    def _unready_sets(self) -> Iterator[str]:
        for kind in ("deployments", "statefulsets"):
            for name, each in self.objects(kind).items():
                wanted, status = each["spec"]["replicas"], each["status"]
                if status.get("observedGeneration", 0) < each["metadata"]["generation"]:
                    yield f"{name}: its change has not been seen yet"
                for count in ("replicas", "readyReplicas", "updatedReplicas"):
                    if status.get(count, 0) != wanted:
                        yield f"{name}: {count} {status.get(count, 0)} of {wanted}"

        for name, each in self.objects("horizontalpodautoscalers").items():
            target = self.objects("deployments")[each["spec"]["scaleTargetRef"]["name"]]
            if target["spec"]["replicas"] < each["spec"]["minReplicas"]:
                yield f"{name}: the autoscaler has not started its smallest number of pods"

    def _unready_claims(self) -> Iterator[str]:
        for name, each in self.objects("persistentvolumeclaims").items():
            if (phase := each["status"]["phase"]) != "Bound":
                yield f"{name}: {phase}"

    def _unused_selectors(self) -> Iterator[str]:
        pods = self.pods().values()
        slices = self.objects("endpointslices").values()
        for name, each in self.objects("services").items():
            chosen = _chosen(each["spec"]["selector"], pods)
            ready = {
                address
                for found in slices
                if found["metadata"]["labels"]["kubernetes.io/service-name"] == name
                for endpoint in found["endpoints"] or ()
                if endpoint["conditions"]["ready"]
                for address in endpoint["addresses"]
            }
            if not chosen or ready != {pod["status"]["podIP"] for pod in chosen}:
                yield f"service {name}: {len(chosen)} pods, {len(ready)} of them in its slices"
        for name, each in self.objects("poddisruptionbudgets").items():
            chosen = _chosen(each["spec"]["selector"]["matchLabels"], pods)
            status = each["status"]
            counted = status["currentHealthy"], status["expectedPods"]
            # No operator makes pods of a RayCluster here.
            by_operator = name.endswith("-ray-worker") and name not in self.objects("deployments")
            if counted != (len(chosen), len(chosen)) or not (chosen or by_operator):
                yield f"budget {name}: {len(chosen)} pods, but {status}"

    def check(self) -> None:
        """Wait until everything is ready, and every selector leads to pods."""
        _eventually(self.problems, "everything is ready")

    def _values(self) -> tuple[str, ...]:
        return "--values", values_file(self.case)

    def _helm(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.cluster.helm(*words, "--namespace", self.namespace)

    def _succeed(self, *words: str) -> None:
        """Run Helm; it must not fail, and the API server must have no warning."""
        done = self._helm(*words)
        if done.returncode == 0 and not _warnings(done.stderr):
            return
        order = "--sort-by=.metadata.creationTimestamp"
        events = self.cluster.kubectl("get", "events", "-n", self.namespace, order)
        raise AssertionError(f"helm {words[0]}: {done.stderr}\n{events[-4000:]}")


def _eventually(problems: Callable[[], list[str]], what: str) -> None:
    """Wait until there are no problems; the error says which ones there were in the end."""
    last: list[str] = []

    def none() -> bool:
        last[:] = problems()
        return not last

    try:
        eventually(none, what)
    except AssertionError as error:
        error.add_note("\n".join(last))
        raise


def _warnings(said: str) -> bool:
    return any(word in said.lower() for word in ("warn", "would violate", "unknown field"))


def _chosen(selector: dict[str, str], pods: Any) -> list[Manifest]:
    return [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]


def skip_without_definitions(case: str) -> None:
    """Skip the test if the case has custom resources, and their definitions are not here."""
    if not CUSTOM.is_dir() and any(is_custom(each) for each in render(case)):
        pytest.skip(f"no definitions of custom resources at {CUSTOM}")


@contextmanager
def namespace(cluster: ControlPlane, name: str, case: str) -> Iterator[str]:
    """A namespace with Pod Security `restricted`, volumes, and what users of the case make."""
    levels = [f"pod-security.kubernetes.io/{what}" for what in ("enforce", "warn", "audit")]
    around = _object("Namespace", name)
    around["metadata"]["labels"] = dict.fromkeys(levels, "restricted")
    items = [around, *_volumes(name)]
    items += [_object("Secret", each, name) for each in sorted(GIVEN.get(case, ()))]
    if case == "external":
        items.append(_object("ServiceAccount", "existing", name))
    if case == "tls":
        claim = {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "resources": {"requests": {"storage": "10Gi"}},
        }
        items.append({**_object("PersistentVolumeClaim", "traces", name), "spec": claim})
    given = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "-f", "-", given=json.dumps(given))
    try:
        yield name
    finally:
        cluster.kubectl("delete", "namespace", name, "--timeout=120s")
        cluster.kubectl("delete", "pv", "-l", f"for={name}", "--timeout=60s")


def _object(kind: str, name: str, namespace: str | None = None) -> Manifest:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **place}}


def _volumes(namespace: str) -> Iterator[Manifest]:
    """Volumes of all classes, which no pod ever opens."""
    for storage_class in _CLASSES:
        for number in range(_VOLUMES):
            made = _object("PersistentVolume", f"{namespace}-{storage_class}-{number}")
            made["metadata"]["labels"] = {"for": namespace}
            made["spec"] = {
                "storageClassName": storage_class,
                "capacity": {"storage": "30Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": "/never-opened"},
            }
            yield made
