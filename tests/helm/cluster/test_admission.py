"""The API server accepts every object that the chart renders, without a warning."""

import json
from collections.abc import Iterable, Iterator

import pytest
import yaml

from tests.helm.cluster.control_plane import ControlPlane, needs_cluster
from tests.helm.cluster.release import namespace, skip_without_definitions
from tests.helm.pods import Pod, pods
from tests.helm.tool import CASES, NAMESPACE, Manifest, of_kind, render

pytestmark = needs_cluster

_STRICT = ("apply", "--dry-run=server", "--validate=strict", "-n", NAMESPACE, "-f", "-")


@pytest.fixture(scope="module")
def restricted(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The cluster, with the namespace of the renderings and the accounts that its pods have."""
    with namespace(cluster, NAMESPACE, "external"):
        made: dict[str, Manifest] = {}
        for case in CASES:
            made |= of_kind(render(case), "ServiceAccount")
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", given=_text(made.values()))
        yield cluster


def _text(objects: Iterable[Manifest]) -> str:
    return yaml.safe_dump_all(objects)


@pytest.mark.parametrize("case", CASES)
def test_the_server_validates_every_object_strictly(restricted: ControlPlane, case: str) -> None:
    skip_without_definitions(case)
    done = restricted.try_kubectl(*_STRICT, given=_text(render(case)))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a warning, such as of Pod Security"
    assert len(done.stdout.splitlines()) == len(render(case))


@pytest.mark.parametrize("case", CASES)
def test_pods_that_operators_make_fulfil_pod_security(restricted: ControlPlane, case: str) -> None:
    """No operator runs here, so the pods of its resources are tried by themselves."""
    for pod in pods(render(case)):
        if pod.kind in ("RayCluster", "ScheduledSparkApplication"):
            done = restricted.try_kubectl(*_STRICT, given=json.dumps(_alone(pod)))
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""


def test_the_server_notices_what_is_wrong(restricted: ControlPlane) -> None:
    """The checks above can fail: on a misspelt member, and on a pod that may become root."""
    service = dict(next(iter(of_kind(render("demo"), "Service").values())))
    service["spec"] = {**service["spec"], "selectors": {}}
    done = restricted.try_kubectl(*_STRICT, given=json.dumps(service))
    assert 'unknown field "spec.selectors"' in done.stderr
    pod = next(pod for pod in pods(render("demo")) if pod.role == "test")
    root = _alone(Pod(pod.kind, pod.name, pod.labels, {**pod.spec, "securityContext": {}}))
    done = restricted.try_kubectl(*_STRICT, given=json.dumps(root))
    assert 'violates PodSecurity "restricted' in done.stderr


def _alone(pod: Pod) -> Manifest:
    metadata = {"name": f"{pod.name}-{pod.role}", "labels": pod.labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}
