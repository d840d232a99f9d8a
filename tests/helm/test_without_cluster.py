"""The chart runs without a cluster: each container as a process, each pod with its own network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helm.chroot import Chroot, missing
from tests.helm.kubelet import Instance, Kubelet, kubelet
from tests.helm.pods import pods
from tests.helm.tool import ROOT, needs_helm, render
from tests.helm.wires import wired

pytestmark = [
    needs_helm,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
    pytest.mark.timeout(1800),
]

WAVES = (
    ("etcd",),
    ("ray-head",),
    ("ray-worker", "southbound"),
    ("configurators", "network"),
    ("api", "dashboard"),
)
SCHEMA = '{"attributes": [{"name": "price", "type": "float", "min": 0, "max": 1000}, {"name": "volume", "type": "int", "min": 0, "max": 999}]}'  # noqa: E501


@pytest.fixture(scope="module")
def cluster(image: Chroot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """Every pod of the values `demo`, ready. Those that others wait for begin: it takes less."""
    folder = tmp_path_factory.mktemp("pods")
    folder.chmod(0o755)
    with wired(f"dz{os.getpid()}") as wires, kubelet(render("demo"), image, wires, folder) as made:
        made.start_node()
        for roles in WAVES:
            wave = [each for role in roles for each in of_role(made, role)]
            for each in wave:
                made.start(each)
            made.wait_until(True, *wave)
            if "etcd" in roles:
                secure(made)
        yield made


def secure(cluster: Kubelet) -> None:
    """Run the Job that gives etcd its password."""
    (job,) = [pod for pod in pods(cluster.objects) if pod.role == "etcd-user"]
    member = of_role(cluster, "api")[0]
    (container,) = job.containers
    password = cluster.secret("dz-dzflow-secrets", "etcd-password")
    said = cluster.run(member, container["command"], {"DZFLOW_ETCD__PASSWORD": password})
    assert "asks for a password now" in said


def of_role(cluster: Kubelet, role: str) -> list[Instance]:
    """The pods of a role."""
    return [each for each in cluster.instances if each.pod.role == role]


def token(cluster: Kubelet) -> str:
    return cluster.secret("dz-dzflow-secrets", "operator-token")


def command(cluster: Kubelet, *words: str) -> str:
    """Run `dzflow` where the hosts are."""
    (network,) = of_role(cluster, "network")
    variables = {"DZFLOW_URL": "http://dz-dzflow-api:8080", "DZFLOW_TOKEN": token(cluster)}
    return cluster.run(network, ["dzflow", *words], variables)


def test_every_pod_gets_ready_and_the_service_is_whole(cluster: Kubelet) -> None:
    assert {each.pod.role for each in cluster.instances} == {
        role for wave in WAVES for role in wave
    }
    said = command(cluster, "status")
    assert "3 of 3 switches are up" in said


@contextmanager
def flowing(cluster: Kubelet) -> "Iterator[subprocess.Popen[str]]":
    """Requests and events all the time; each line that is written waits for further requests."""
    (network,) = of_role(cluster, "network")
    url = f"http://{cluster.address_of('dz-dzflow-api')}:8080"
    traffic = subprocess.Popen(
        ["ip", "netns", "exec", network.network, sys.executable, "-m", "tests.helm.traffic", url],
        cwd=ROOT,
        env={**os.environ, "DZFLOW_TOKEN": token(cluster)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert traffic.stdout is not None
        assert traffic.stdout.readline() == "flowing\n", traffic.communicate()[1]
        yield traffic
        _, errors = traffic.communicate(timeout=600)  # the end of its input ends it
        assert traffic.returncode == 0, errors
    finally:
        traffic.kill()
        traffic.communicate()


def more(traffic: "subprocess.Popen[str]") -> None:
    """Wait until some more requests were acknowledged."""
    assert traffic.stdin is not None
    assert traffic.stdout is not None
    traffic.stdin.write("more\n")
    traffic.stdin.flush()
    assert traffic.stdout.readline().strip().isdecimal(), traffic.communicate()[1]


def test_no_request_and_no_event_is_lost_while_every_pod_is_replaced(cluster: Kubelet) -> None:
    (network,) = of_role(cluster, "network")
    variables = {"DZFLOW_URL": "http://dz-dzflow-api:8080", "DZFLOW_TOKEN": token(cluster)}
    put = ["sh", "-c", f"echo '{SCHEMA}' | dzflow space put stocks -"]
    assert "stocks" in cluster.run(network, put, variables)
    with flowing(cluster) as traffic:
        for role in ("api", "dashboard", "southbound", "configurators", "etcd"):
            for each in of_role(cluster, role):
                code = cluster.stop(each)
                assert code == 0, (each.name, code, cluster.logs(each.name))
                cluster.wait_until(False, each)
                cluster.start(each)
                cluster.wait_until(True, each)
                more(traffic)
    assert "3 of 3 switches are up" in command(cluster, "status")


def test_logs_of_pods_are_on_their_output_without_secrets(cluster: Kubelet) -> None:
    shown = "".join(cluster.logs(each.name) for each in cluster.instances)
    assert '"process": "api-1"' in shown
    for key in ("operator-token", "stream-token", "etcd-password"):
        assert cluster.secret("dz-dzflow-secrets", key) not in shown
