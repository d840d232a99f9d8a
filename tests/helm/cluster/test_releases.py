"""The life of a release on a real API server, with each of the values files.

Everything is real but the nodes: controllers and the scheduler make pods of the chart's objects,
and kwok says that they run. No container is started; `make test-pods` does that.
"""

from pathlib import Path

import yaml

from tests.helm.cluster.control_plane import needs_cluster
from tests.helm.cluster.release import Release
from tests.helm.tool import CHART, RELEASE, helm

pytestmark = needs_cluster

_NEXT = "0.2.0"
_NAME = f"{RELEASE}-dzflow"


def test_an_installed_release_is_ready_and_passes_its_test(release: Release) -> None:
    release.check()
    release.test()
    assert f"pod/{_NAME}-test" not in release.left(), "nothing is left of a test that passed"


def test_its_service_accounts_may_do_nothing(release: Release) -> None:
    """They may do what any account may, and no pod mounts their token."""
    pods = release.pods()
    accounts = {pod["spec"]["serviceAccountName"] for pod in pods.values()}
    accounts |= set(release.objects("serviceaccounts"))
    for name in accounts:
        assert _rights(release, name) == _rights(release, "default"), name
    for name, pod in pods.items():
        sources = [
            source
            for volume in pod["spec"].get("volumes", [])
            for source in volume.get("projected", {}).get("sources", [])
        ]
        assert not [each for each in sources if "serviceAccountToken" in each], name


def _rights(release: Release, account: str) -> set[str]:
    cluster, space = release.cluster, release.namespace
    who = f"system:serviceaccount:{space}:{account}"
    told = cluster.kubectl("auth", "can-i", "--list", f"--as={who}", "-n", space)
    return set(told.splitlines())


def test_an_account_with_a_right_is_noticed(release: Release) -> None:
    cluster, space = release.cluster, release.namespace
    who = f"--serviceaccount={space}:someone"
    cluster.kubectl("create", "role", "some", "--verb=get", "--resource=pods", "-n", space)
    cluster.kubectl("create", "rolebinding", "some", "--role=some", who, "-n", space)
    assert _rights(release, "someone") != _rights(release, "default")
    cluster.kubectl("delete", "rolebinding/some", "role/some", "-n", space)


def test_an_upgrade_and_a_rollback_keep_tokens_certificates_and_volumes(
    release: Release, tmp_path: Path
) -> None:
    versions = ("--version", _NEXT, "--app-version", _NEXT)
    packed = helm("package", str(CHART), "--destination", str(tmp_path), *versions)
    assert packed.returncode == 0, packed.stderr
    first, state, settings = release.revision(), release.state(), release.settings()
    images, old = _images(release), release.ids()

    chart = str(tmp_path / f"dzflow-{_NEXT}.tgz")

    release.upgrade(chart=chart)
    release.check()
    assert release.state() == state
    assert not old & release.ids(), "every pod has been replaced"
    if release.case != "full":  # which names a digest
        assert _images(release) == {f"dzflow:{_NEXT}"}

    release.upgrade("--set", "drain.time=13", chart=chart)
    release.check()
    assert "drain: 13" in release.settings()
    assert release.state() == state

    release.rollback(first)
    release.check()
    assert release.settings() == settings
    assert release.state() == state
    assert _images(release) == images


def _images(release: Release) -> set[str]:
    return {c["image"] for pod in release.pods().values() for c in pod["spec"]["containers"]}


def test_scaling_adds_and_ends_pods_and_replaces_none(release: Release) -> None:
    small, old, services = _sizes(release), release.ids(), set(release.objects("services"))
    values = {
        "api": "api.replicas",
        "configurators": "configurators.supervisors",
        "southbound": "southbound.replicas",
        "ray-worker": "ray.worker.replicas",
    }
    if release.objects("horizontalpodautoscalers"):
        del values["api"]
    if release.case == "plain":  # ONOS has one southbound process
        del values["southbound"]
    large = {role: small[role] + 1 for role in values if role in small}

    release.upgrade(*(w for role, n in large.items() for w in ("--set", f"{values[role]}={n}")))
    release.check()
    assert _sizes(release) == {**small, **large}
    assert old <= release.ids(), "no pod was replaced"
    new = {f"{_NAME}-southbound-{small['southbound']}"} if "southbound" in large else set()
    assert set(release.objects("services")) - services == new, "each switch address has a Service"

    release.upgrade()
    release.check()
    assert _sizes(release) == small
    assert set(release.objects("services")) == services


def _sizes(release: Release) -> dict[str, int]:
    """How many pods each Deployment and StatefulSet wants, by the end of its name."""
    return {
        name.removeprefix(f"{_NAME}-"): each["spec"]["replicas"]
        for kind in ("deployments", "statefulsets")
        for name, each in release.objects(kind).items()
    }


def test_a_node_can_be_drained(release: Release) -> None:
    """Disruption budgets let pods go one after the other, and the next ones find another node."""
    kubectl = release.cluster.kubectl
    try:
        # Pods end soon here. Elsewhere, the controller has long tainted the node when they have.
        kubectl("cordon", "node-2")
        tainted = "jsonpath={.spec.taints[0].key}=node.kubernetes.io/unschedulable"
        kubectl("wait", "node/node-2", f"--for={tainted}", "--timeout=30s")
        kubectl("drain", "node-2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
        release.check()
        assert {pod["spec"]["nodeName"] for pod in release.pods().values()} == {"node-1"}
    finally:
        kubectl("uncordon", "node-2")


def test_another_number_of_configurators_reaches_their_supervisors_only(release: Release) -> None:
    """They apply it when they start (tests/api/start/workers/test_wanted.py)."""
    count = yaml.safe_load(release.settings())["configurators"]
    others, supervisors = release.ids("configurators"), release.ids()
    release.upgrade("--set", f"configurators.count={count - 1}")
    release.check()
    assert yaml.safe_load(release.settings())["configurators"] == count - 1
    assert release.ids("configurators") == others
    assert not (supervisors - others) & release.ids()
    release.upgrade()
    release.check()


def test_what_is_left_of_a_release_is_taken_up_by_the_next_one(release: Release) -> None:
    """The Secret with etcd's password, and the claims, are data; nothing else stays.

    What Ray's head has stored is no data: another installation begins another cluster of Ray.
    """
    state = release.state()
    secret, head = f"{_NAME}-secrets", f"{_NAME}-ray-head"
    state["claims"].pop(head, None)
    kept = {f"persistentvolumeclaim/{name}" for name in state["claims"]}
    kept |= {f"secret/{secret}"} & {f"secret/{name}" for name in state["secrets"]}
    release.uninstall()
    release.check_left(kept)
    release.install()
    release.check()
    again = release.state()
    again["claims"].pop(head, None)
    assert again["claims"] == state["claims"]
    assert again["secrets"].get(secret) == state["secrets"].get(secret)
