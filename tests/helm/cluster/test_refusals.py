"""What cannot work is refused with a message that says what to do, and leaves nothing behind."""

from collections.abc import Iterator

import pytest

from tests.helm.cluster.control_plane import ControlPlane, control_plane, needs_cluster
from tests.helm.cluster.release import Release, namespace
from tests.helm.tool import RELEASE

pytestmark = needs_cluster


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster without any custom resource."""
    with control_plane(tmp_path_factory.mktemp("bare")) as made:
        yield made


@pytest.fixture(scope="module")
def empty(bare: ControlPlane) -> Iterator[Release]:
    """A namespace of a cluster without operators, where nothing is installed."""
    with namespace(bare, "empty", "minimal") as name:
        yield Release(bare, name, "minimal")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "no RayCluster; install the KubeRay operator first, or set ray.mode=plain"),
        (
            "ray.mode=plain,traces.to=volume,spark.mode=operator",
            "no ScheduledSparkApplication; install the Spark operator first, or set"
            " spark.mode=cronjob",
        ),
        (
            "ray.mode=plain,monitoring.serviceMonitor.enabled=true",
            "no ServiceMonitor; install the Prometheus operator first, or switch serviceMonitor",
        ),
        (
            "ray.mode=plain,monitoring.alerts.enabled=true",
            "install the Prometheus operator first, or switch serviceMonitor and alerts off",
        ),
        ("ray.mode=plain,etcd.replicas=2", "'/etcd/replicas': value must be one of 1, 3"),
        ("ray.mode=plain,dataPlane=external", "southbound.tls.allowPlain=true"),
    ],
)
def test_an_installation_that_cannot_work_is_refused(empty: Release, given: str, said: str) -> None:
    done = empty.try_install("--set", given)
    assert done.returncode == 1
    assert said in done.stderr
    assert empty.left() == set()
    assert RELEASE not in empty.cluster.helm("list", "--all", "-n", empty.namespace).stdout


@pytest.fixture(scope="module")
def installed(bare: ControlPlane) -> Iterator[Release]:
    """A release with three members of etcd, without operators."""
    with namespace(bare, "installed", "plain") as name:
        made = Release(bare, name, "plain")
        made.install()
        yield made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("etcd.replicas=1", "etcd.replicas: it is 3 and cannot be changed"),
        ("etcd.persistence.enabled=false", "etcd.persistence.enabled: it cannot be changed"),
        ("etcd.persistence.size=20Gi", 'etcd.persistence: the claims have 10Gi of the class ""'),
        ("etcd.persistence.storageClass=fast", "which an upgrade cannot change"),
        ("southbound.replicas=2", "with dataPlane=onos there is one southbound process"),
        ("api.replicas=-1", "'/api/replicas'"),
    ],
)
def test_an_upgrade_that_cannot_work_is_refused(installed: Release, given: str, said: str) -> None:
    state, revision = installed.state(), installed.revision()
    done = installed.try_upgrade("--set", given)
    assert done.returncode == 1
    assert said in done.stderr
    assert (installed.state(), installed.revision()) == (state, revision)
    assert installed.problems() == []


def test_a_size_that_is_written_in_another_way_is_the_same_size(installed: Release) -> None:
    installed.upgrade("--set", "etcd.persistence.size=10240Mi")
