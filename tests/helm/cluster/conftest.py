"""The cluster of these tests, and a release of the chart in it for each values file."""

from collections.abc import Iterator

import pytest

from tests.helm.cluster.control_plane import ControlPlane, control_plane
from tests.helm.cluster.release import Release, namespace, skip_without_definitions
from tests.helm.schemas import CUSTOM
from tests.helm.tool import CASES, NAMESPACE


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with the custom resources of KubeRay, Spark's operator and Prometheus', if here."""
    with control_plane(tmp_path_factory.mktemp("cluster")) as made:
        if CUSTOM.is_dir():
            made.kubectl("create", "-f", str(CUSTOM))
            made.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        yield made


@pytest.fixture(scope="module", params=CASES)
def release(request: pytest.FixtureRequest, cluster: ControlPlane) -> Iterator[Release]:
    """An installed release; each test leaves it installed, with the values of its case."""
    case: str = request.param
    skip_without_definitions(case)
    with namespace(cluster, f"{NAMESPACE}-{case}", case) as name:
        made = Release(cluster, name, case)
        made.install()
        yield made
