"""The pods that a rendering leads to, whatever object makes them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.helm.tool import Manifest


class Pod(NamedTuple):
    """A pod template: the object that makes pods of it, their labels, annotations and spec."""

    kind: str
    name: str
    labels: dict[str, str]
    spec: dict[str, Any]

    @property
    def role(self) -> str:
        """What the pod does."""
        return self.labels["dzflow/role"]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All containers, those that only start the others, too."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def port(self, name: str | int) -> int:
        """The number of a port that containers have declared."""
        if isinstance(name, int):
            return name
        declared = {
            port["name"]: port["containerPort"]
            for container in self.containers
            for port in container.get("ports", [])
        }
        return int(declared[name])


def pods(objects: tuple[Manifest, ...]) -> Iterator[Pod]:
    """All pod templates."""
    for each in objects:
        kind, name, spec = each["kind"], each["metadata"]["name"], each.get("spec", {})
        if kind == "Pod":
            yield Pod(kind, name, each["metadata"]["labels"], spec)
        elif kind in ("Deployment", "StatefulSet", "Job"):
            yield _pod(kind, name, spec["template"])
        elif kind == "CronJob":
            yield _pod(kind, name, spec["jobTemplate"]["spec"]["template"])
        elif kind == "RayCluster":
            for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
                yield _pod(kind, name, group["template"])
        elif kind == "ScheduledSparkApplication":
            yield _driver(kind, name, spec["template"])


def _pod(kind: str, name: str, template: dict[str, Any]) -> Pod:
    return Pod(kind, name, template["metadata"]["labels"], template["spec"])


def _driver(kind: str, name: str, application: dict[str, Any]) -> Pod:
    """The pod that the Spark operator makes for the driver."""
    driver = application["driver"]
    container = {
        "name": "driver",
        "image": application["image"],
        "env": driver.get("env", []),
        "envFrom": driver.get("envFrom", []),
        "securityContext": driver["securityContext"],
        "volumeMounts": driver["volumeMounts"],
        # Spark writes 2g for what Kubernetes writes as 2Gi.
        "resources": {"limits": {"memory": driver["memory"].replace("g", "Gi")}},
    }
    spec = {
        "containers": [container],
        "volumes": application["volumes"],
        "securityContext": driver["podSecurityContext"],
        "serviceAccountName": driver["serviceAccount"],
        "imagePullSecrets": [{"name": name} for name in application.get("imagePullSecrets", [])],
    }
    return Pod(kind, name, driver["labels"], spec)
