"""The chart runs without a cluster: each container as a process, each pod with its own network.

`make test-pods` runs it; it needs root, Java, and minutes. The manifests of the values `demo` are
taken as Helm renders them: commands, environment, files, probes, Services, and the pods of the Job
that secures etcd, of `helm test`, and of the Spark job. Hosts send requests and events; requests go
through the API's Service.

Then the pods of each role are replaced under traffic, as an update does: those of a Deployment by
one that is ready before the old one ends, those of a StatefulSet under the same name, with their
claims. The new pod has a new address. The Spark job runs on the traces of all of this, in the image
for it, and its plan is carried out.

Network policies are enforced, and no pod may even try what they forbid.

Not covered: KubeRay, Ingress, limits of resources, capabilities, and the order in which a cluster
starts pods (here, those that others wait for begin). The hosts that send events run from the
sources, beside the network's pod, as far as policies are concerned within it. While that pod is
replaced there are no events, because the emulated switches and hosts end with it.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helm.chroot import Chroot, missing
from tests.helm.machine.instance import Instance
from tests.helm.machine.kubelet import Kubelet, kubelet
from tests.helm.machine.wires import wired
from tests.helm.pods import Pod, pods
from tests.helm.tool import ROOT, needs_helm, of_kind, render
from tests.service import eventually

pytestmark = [
    pytest.mark.pods,
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
# The head of Ray and the network have tests of their own.
ROLLED = ("api", "dashboard", "southbound", "configurators", "ray-worker", "etcd")
# Ray ends so when it is told to end.
CODES = {"ray-head": 1, "ray-worker": 1}
SWITCHES = ("s1", "s2", "s3")
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
    assert "asks for a password now" in cluster.run_pod(pod_of(cluster, "etcd-user"))


def pod_of(cluster: Kubelet, role: str) -> Pod:
    """The pod of a role that ends by itself."""
    (found,) = [pod for pod in pods(cluster.objects) if pod.role == role]
    return found


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
    wait_until_whole(cluster)


def wait_until_whole(cluster: Kubelet) -> None:
    """Run the pod of `helm test` until it finds everything in order."""

    # Where processes get no processor time for seconds, leases end, and are taken again.
    def whole() -> bool:
        said = cluster.run_pod(pod_of(cluster, "test"), check=False)
        return "3 of 3 switches are up" in said and "not ready" not in said

    eventually(whole, "all switches are up, and nothing is impaired")


@contextmanager
def flowing(cluster: Kubelet) -> "Iterator[subprocess.Popen[str]]":
    """Requests and events all the time, of hosts beside the network's pod."""
    (network,) = of_role(cluster, "network")
    with traffic(cluster, network.network) as flow:
        yield flow


@contextmanager
def traffic(cluster: Kubelet, network: str, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """Traffic from a namespace; prints in the end how long the slowest request took."""
    url = f"http://{cluster.address_of('dz-dzflow-api')}:8080"
    command = [sys.executable, "-m", "tests.helm.machine.traffic", url, *words]
    flow = subprocess.Popen(
        ["ip", "netns", "exec", network, *command],
        cwd=ROOT,
        env={**os.environ, "DZFLOW_TOKEN": token(cluster)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert flow.stdout is not None
        assert flow.stdout.readline() == "flowing\n", flow.communicate()[1]
        yield flow
        said, errors = flow.communicate(timeout=600)  # the end of its input ends it
        assert flow.returncode == 0, errors
        print(said.strip())
    finally:
        flow.kill()
        flow.communicate()


def more(flow: "subprocess.Popen[str]", count: int = 5) -> None:
    """Wait until so many more requests were acknowledged."""
    assert flow.stdin is not None
    assert flow.stdout is not None
    flow.stdin.write(f"{count}\n")
    flow.stdin.flush()
    assert flow.stdout.readline().strip().isdecimal(), flow.communicate()[1]


def test_the_first_event_of_the_page_arrives(cluster: Kubelet) -> None:
    """As docs/how-to/deploy.md says, in the pod of the emulated network."""
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    (schema,) = re.findall(r"^ +(echo .*) \\\n +(\| dzflow space put .*)$", page, re.MULTILINE)
    listen, publish = re.findall(r"^ +\$inside (dzflow .*?)(?: &)?$", page, re.MULTILINE)
    # It first says that it listens.
    heard = f"{listen} 2>&1 | {{ read line; echo $line; {publish} >&2; cat; }}"
    words = f"{' '.join(schema)} && {heard}".replace(" stocks ", " first ")
    said = command(cluster, "sh", "-c", words)
    assert re.search(r"^listening as .*$[^{}]*^price=500$", said, re.MULTILINE), said


def test_requests_are_acknowledged_and_events_arrive_once(cluster: Kubelet) -> None:
    with flowing(cluster) as flow:
        more(flow)


@pytest.mark.parametrize("role", ROLLED)
def test_nothing_is_lost_while_pods_are_replaced(cluster: Kubelet, role: str) -> None:
    with flowing(cluster) as flow:
        for each in of_role(cluster, role):
            cluster.replace(each)
            assert each.code == CODES.get(role, 0), (each.name, cluster.logs(each.name))
            more(flow)
    wait_until_whole(cluster)


def test_configurators_go_on_while_the_head_of_ray_is_replaced(cluster: Kubelet) -> None:
    before = configurators(cluster)
    (head,) = of_role(cluster, "ray-head")
    with flowing(cluster) as flow:
        cluster.replace(head)
        assert head.code == CODES["ray-head"], cluster.logs(head.name)
        more(flow)
        assert configurators(cluster) == before, "they are the same processes"
        # The new head knows them, and places others, as soon as a supervisor has joined it.
        scale(cluster, len(before) + 1)
        assert configurators(cluster).items() >= before.items()
        scale(cluster, len(before))
        more(flow)
    assert configurators(cluster) == before


def scale(cluster: Kubelet, count: int) -> None:
    """Have so many configurators, and wait until there are."""
    words = ("dzflow", "configurators", "scale", str(count))
    eventually(lambda: "error" not in command(cluster, *words, check=False), "it is accepted")
    eventually(lambda: len(configurators(cluster)) == count, f"there are {count} configurators")


def configurators(cluster: Kubelet) -> dict[str, str]:
    """The processes of the configurators, by name."""
    found = json.loads(command(cluster, "dzflow", "configurators", "--json"))
    return {each["id"]: f"{each['address']} {each['pid']}" for each in found["items"]}


def test_the_spark_job_reads_the_traces_and_has_its_plan_carried_out(
    cluster: Kubelet, spark_image: Chroot
) -> None:
    """Before, one configurator has all the work, so there is something to gain."""
    names = sorted(configurators(cluster))
    plan = json.loads(command(cluster, "dzflow", "partitions", "plan", "--template", "stocks"))
    plan["assignment"] = dict.fromkeys(owners(cluster), names[0])
    written = f"echo '{json.dumps(plan)}' > /tmp/plan && dzflow partitions plan /tmp/plan --wait"
    command(cluster, "sh", "-c", written)
    assert set(owners(cluster).values()) == {names[0]}
    with flowing(cluster) as flow:
        more(flow, 60)
        # A pod that ends completes its files of traces.
        for each in of_role(cluster, "api"):
            cluster.replace(each)
        said = cluster.run_pod(pod_of(cluster, "spark"), spark_image)
        more(flow)
    assert "stocks: done" in said, said
    assert set(owners(cluster).values()) == set(names)


def test_what_the_operator_of_spark_starts_reads_the_traces_too(
    cluster: Kubelet, spark_image: Chroot
) -> None:
    """In the driver's pod, the entry point of the image calls spark-submit."""
    objects = render("demo", "--set", "spark.mode=operator")
    (application,) = of_kind(objects, "ScheduledSparkApplication").values()
    template = application["spec"]["template"]
    (pod,) = [each for each in pods(objects) if each.role == "spark"]
    command = ["/opt/dzflow/bin/spark-entrypoint", "driver"]
    command += ["--conf", "spark.master=k8s://https://kubernetes.default.svc"]
    command += ["--class", "org.apache.spark.deploy.PythonRunner"]
    command += [template["mainApplicationFile"], *template["arguments"]]
    started = {**pod.spec["containers"][0], "command": command}
    said = cluster.run_pod(pod._replace(spec={**pod.spec, "containers": [started]}), spark_image)
    assert "stocks" in said, said


def owners(cluster: Kubelet) -> dict[str, str]:
    """The owners of the partitions of the space, by leaf."""
    found = json.loads(command(cluster, "dzflow", "partitions", "--json"))
    return {
        each["leaf"]: each["configurator"] for each in found["items"] if each["space"] == "stocks"
    }


def test_requests_wait_while_the_network_is_replaced_and_switches_get_all_entries_again(
    cluster: Kubelet,
) -> None:
    wanted = ["--space", "stocks", "--filter", "price > 420"]
    command(cluster, "dzflow", "advertise", "--host", "h2", *wanted)
    command(cluster, "dzflow", "subscribe", "--host", "h3", *wanted)
    assert flows(cluster, "cp")
    (network,) = of_role(cluster, "network")
    with traffic(cluster, cluster.network, "requests") as flow:
        cluster.replace(network)
        more(flow)
    eventually(lambda: flows(cluster, "dp") == flows(cluster, "cp"), "switches have all entries")
    assert flows(cluster, "dp")
    with flowing(cluster) as flow:
        more(flow)


def flows(cluster: Kubelet, source: str) -> list[str]:
    """The entries of all spaces, as switches have them (dp) or the control plane (cp), in order."""
    found = []
    for switch in SWITCHES:
        said = command(cluster, "dzflow", "flows", switch, "--source", source, "--json")
        items = [each for each in json.loads(said)["items"] if each["space"]]
        found += [f"{switch} {each | {'packets': None, 'bytes': None}}" for each in items]
    return sorted(found)


def test_pods_print_what_happens_but_no_secrets(cluster: Kubelet) -> None:
    keys = ("operator-token", "stream-token", "ray-token", "etcd-password")
    secrets = {key: cluster.secret("dz-dzflow-secrets", key) for key in keys}
    printed = cluster.printed()
    for each in cluster.instances:
        assert printed[each.name], each.name
    for name, text in printed.items():
        assert not [key for key, secret in secrets.items() if secret in text], name


def test_pods_have_tried_no_connection_that_network_policies_forbid(cluster: Kubelet) -> None:
    assert cluster.refused() == {}
