"""The chart runs without a cluster: each container as a process, each pod with its own network.

`make test-pods` runs it; it needs root, and minutes. The manifests of the values `demo` are taken
as Helm renders them: commands, environment, files, probes, Services, the command of the Job that
secures etcd, and that of `helm test`'s pod. Hosts send requests and events; requests go through the
API's Service.

Then the pods of the API, of the southbound and of the supervisors are replaced one after the other
under traffic: told to end, and started at the same address once they have ended.

Not covered: the replacement of Ray's pods, of etcd's and of the network's; pods that are replaced
before the old one ends (as a Deployment does); the Spark job, KubeRay, Ingress, network policies,
limits of resources, capabilities, and the order in which a cluster starts pods (here, those that
others wait for begin). The hosts that send events run from the sources, beside the network's pod.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helm.chroot import Chroot, missing
from tests.helm.machine.kubelet import Instance, Kubelet, kubelet
from tests.helm.pods import pods
from tests.helm.tool import ROOT, needs_helm, render
from tests.helm.machine.wires import wired
from tests.service import eventually

pytestmark = [
    pytest.mark.skipif(
        "DZFLOW_PODS" not in os.environ, reason="it is heavy; `make test-pods` runs it"
    ),
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
ROLLED = ("api", "southbound", "configurators")
SCHEMA = json.dumps(
    {
        "attributes": [
            {"name": "price", "type": "float", "min": 0, "max": 1000},
            {"name": "volume", "type": "int", "min": 0, "max": 999},
        ]
    }
)


@pytest.fixture(scope="module")
def cluster(image: Chroot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """Every pod of the values `demo`, ready, and a space."""
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
        put = ["sh", "-c", f"echo '{SCHEMA}' | dzflow space put stocks -"]
        assert "stocks" in command(made, *put)
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


def command(cluster: Kubelet, *words: str, check: bool = True) -> str:
    """Run a command where the hosts are."""
    (network,) = of_role(cluster, "network")
    variables = {"DZFLOW_URL": "http://dz-dzflow-api:8080", "DZFLOW_TOKEN": token(cluster)}
    return cluster.run(network, list(words), variables, check)


def test_every_pod_gets_ready_and_the_pod_of_helm_test_finds_the_service_whole(
    cluster: Kubelet,
) -> None:
    known = {role for wave in WAVES for role in wave}
    assert {each.pod.role for each in cluster.instances} == known
    (test,) = [pod for pod in pods(cluster.objects) if pod.role == "test"]
    (container,) = test.containers

    # Where processes get no processor time for seconds, leases end, and are taken again.
    def whole() -> bool:
        said = command(cluster, *container["command"], check=False)
        return "3 of 3 switches are up" in said and "not ready" not in said

    eventually(whole, "all switches are up, and nothing is impaired")


@contextmanager
def flowing(cluster: Kubelet) -> "Iterator[subprocess.Popen[str]]":
    """Requests and events all the time; each line that is written waits for further requests."""
    (network,) = of_role(cluster, "network")
    url = f"http://{cluster.address_of('dz-dzflow-api')}:8080"
    traffic = subprocess.Popen(
        ["ip", "netns", "exec", network.network, sys.executable, "-m", "tests.helm.machine.traffic", url],
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


def test_requests_are_acknowledged_and_events_arrive_once(cluster: Kubelet) -> None:
    with flowing(cluster) as traffic:
        more(traffic)


@pytest.mark.parametrize("role", ROLLED)
def test_nothing_is_lost_while_pods_are_replaced(cluster: Kubelet, role: str) -> None:
    with flowing(cluster) as traffic:
        for each in of_role(cluster, role):
            code = cluster.stop(each)
            assert code == 0, (each.name, code, cluster.logs(each.name))
            cluster.wait_until(False, each)
            cluster.start(each)
            cluster.wait_until(True, each)
            more(traffic)


def test_pods_print_what_happens_but_no_secrets(cluster: Kubelet) -> None:
    keys = ("operator-token", "stream-token", "ray-token", "etcd-password")
    secrets = {key: cluster.secret("dz-dzflow-secrets", key) for key in keys}
    for each in cluster.instances:
        printed = cluster.log(each.name).read_text()
        assert printed, each.name
        assert not [key for key, secret in secrets.items() if secret in printed], each.name
