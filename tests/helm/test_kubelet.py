"""The stand-in for a cluster keeps its word: checked with small pods, which start at once."""

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helm.chroot import Chroot, child, missing
from tests.helm.machine.instance import Instance
from tests.helm.machine.kubelet import Kubelet, kubelet
from tests.helm.machine.wires import wired
from tests.helm.pods import pods
from tests.helm.tool import Manifest

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

# Answers with its name. When it is told to end, it says that it is not ready, and ends once two
# probes have heard that.
SERVER = """
import http.server, os, signal, socket, threading
socket.gethostbyname(socket.gethostname())  # Java wants it, too
told = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    heard = 0
    def do_GET(self):
        refused = self.path == "/readyz" and told.is_set()
        body = os.environ["SAYS"].encode()
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        Handler.heard += refused
        if Handler.heard == 2:
            threading.Thread(target=server.shutdown).start()
server = http.server.ThreadingHTTPServer(("", 8080), Handler)
signal.signal(signal.SIGTERM, lambda *_: told.set())
server.serve_forever()
"""
ASK = """
import urllib.request
for _ in range(4):
    print(urllib.request.urlopen("http://web/").read().decode())
"""


def manifests(python: str, kind: str) -> tuple[Manifest, ...]:
    """An object of two pods, with its Service, the files that they need, and Jobs."""
    labels = {"dzflow/role": "web"}
    name = {"fieldRef": {"fieldPath": "metadata.name"}}
    greeting = {"secretKeyRef": {"name": "words", "key": "greeting"}}
    container = {
        "command": [python, "-IS", "/etc/web/server.py"],
        "env": [
            {"name": "POD", "valueFrom": name},
            {"name": "GREETING", "valueFrom": greeting},
            {"name": "SAYS", "value": "$(GREETING) $(POD)"},
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
        "livenessProbe": _probe("/healthz", 6),
        "readinessProbe": _probe("/readyz", 2),
        "volumeMounts": [
            {"name": "settings", "mountPath": "/etc/web", "readOnly": True},
            {"name": "kept", "mountPath": "/kept"},
        ],
    }
    volumes: list[Manifest] = [{"name": "settings", "configMap": {"name": "settings"}}]
    if kind == "Deployment":
        volumes.append({"name": "kept", "emptyDir": {}})
    spec = {
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
        "volumes": volumes,
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    service = {"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]}
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return (
        _object(kind, "web", spec={"replicas": 2, "template": template, "strategy": update}),
        _object("Job", "reader", spec={"template": _reader()}),
        _object("Job", "asker", spec={"template": _asker(python)}),
        _object("PersistentVolumeClaim", "claim", spec={}),
        _object("Service", "web", spec=service),
        _object("ConfigMap", "settings", data={"server.py": SERVER}),
        _object("Secret", "words", data={"greeting": "aGVsbG8="}),
    )


def _reader() -> Manifest:
    claim = {"claimName": "claim", "readOnly": True}
    container = {
        "command": ["touch", "/claim/file"],
        "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "claim", "persistentVolumeClaim": claim}],
    }
    return {"metadata": {"labels": {"dzflow/role": "reader"}}, "spec": spec}


def _asker(python: str) -> Manifest:
    container = {"command": [python, "-I", "-c", ASK], "volumeMounts": []}
    return {"metadata": {"labels": {"dzflow/role": "asker"}}, "spec": {"containers": [container]}}


def policies() -> tuple[Manifest, ...]:
    """The Job `asker` may ask the other pods, and nothing else is allowed."""
    return (
        _policy("asker", egress=[_rule("to", "web")]),
        _policy("web", ingress=[_rule("from", "asker")]),
        _policy("reader"),
    )


def _policy(role: str, **rules: list[Manifest]) -> Manifest:
    chosen = {"podSelector": {"matchLabels": {"dzflow/role": role}}}
    return _object("NetworkPolicy", role, spec={"ingress": [], "egress": [], **chosen, **rules})


def _rule(direction: str, role: str) -> Manifest:
    peer = {"podSelector": {"matchLabels": {"dzflow/role": role}}}
    return {direction: [peer], "ports": [{"port": 8080}]}


def _probe(path: str, failures: int) -> Manifest:
    probe = {"httpGet": {"path": path, "port": "http"}}
    return probe | {"periodSeconds": 1, "failureThreshold": failures}


def _object(kind: str, name: str, **parts: Manifest) -> Manifest:
    return {"kind": kind, "metadata": {"name": name}, **parts}


def namespaces() -> str:
    """What `ip` lists."""
    return subprocess.run(["ip", "netns"], check=True, capture_output=True, text=True).stdout


def pidfd(instance: Instance) -> int:
    """A descriptor that can be read once the container's own process has ended."""
    assert instance.process is not None
    return os.pidfd_open(child(instance.process))


@contextmanager
def started(
    folder: Path, kind: str = "Deployment", further: tuple[Manifest, ...] = ()
) -> Iterator[Kubelet]:
    """Both pods, ready; `further` are more objects."""
    root = folder / "root"
    root.mkdir(mode=0o755)
    image = Chroot(root)
    with (
        wired(f"dk{os.getpid()}") as wires,
        kubelet(manifests(image.python, kind) + further, image, wires, folder) as made,
    ):
        made.start_node()
        for each in made.instances:
            made.start(each)
        made.wait_until(True, *made.instances)
        yield made


def asked(cluster: Kubelet) -> set[str]:
    """Who answers at the Service's name."""
    python = cluster.instances[0].container["command"][0]
    said = cluster.run(cluster.instances[0], [python, "-I", "-c", ASK], {})
    return set(said.splitlines())


def test_a_service_leads_to_the_pods_that_are_ready_also_while_one_is_replaced(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as cluster:
        first, second = cluster.instances
        assert asked(cluster) == {"hello web-0", "hello web-1"}
        cluster.stop(first)
        assert first.code == 0
        cluster.wait_until(False, first)
        assert asked(cluster) == {"hello web-1"}
        cluster.start(first)
        cluster.wait_until(True, first)
        assert asked(cluster) == {"hello web-0", "hello web-1"}
        assert (first.restarts, second.restarts) == (0, 0)


def test_a_pod_of_a_deployment_is_replaced_by_one_of_another_name_that_is_ready_before_it_ends(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as cluster:
        first, second = cluster.instances
        new = cluster.replace(first)
        assert (new.name, new.address) != (first.name, first.address)
        assert cluster.instances == [second, new]
        assert asked(cluster) == {f"hello {second.name}", f"hello {new.name}"}
        assert first.code == 0
        assert first.network not in namespaces().split()
        assert kept(cluster, new) == "", "it begins with an empty folder"


def test_a_pod_of_a_stateful_set_is_replaced_by_one_with_its_name_and_its_claims(
    tmp_path: Path,
) -> None:
    with started(tmp_path, "StatefulSet") as cluster:
        first, second = cluster.instances
        cluster.run(first, ["sh", "-c", "echo word > /kept/file"], {})
        new = cluster.replace(first)
        assert new.name == first.name
        assert new.address != first.address
        assert kept(cluster, new) == "file\n"
        assert kept(cluster, second) == ""
        assert asked(cluster) == {"hello web-0", "hello web-1"}


def test_a_pod_that_ends_by_itself_has_the_claims_that_it_names_and_cannot_write_if_it_only_reads(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as cluster:
        (reader,) = [pod for pod in pods(cluster.objects) if pod.role == "reader"]
        said = cluster.run_pod(reader, check=False)
    assert "Read-only file system" in said


def test_pods_can_make_the_connections_that_policies_allow_and_no_other_ones(
    tmp_path: Path,
) -> None:
    with started(tmp_path, further=policies()) as cluster:
        first, second = cluster.instances
        (asker,) = [pod for pod in pods(cluster.objects) if pod.role == "asker"]
        new = cluster.replace(first)
        answers = {f"hello {second.name}", f"hello {new.name}"}
        assert set(cluster.run_pod(asker).splitlines()) == answers
        assert cluster.refused() == {}
        said = cluster.run(new, asker.containers[0]["command"], {}, check=False)
        assert "Network is unreachable" in said
        assert cluster.refused() == {"web": 1}
        cluster.replace(new)
        assert cluster.refused() == {"web": 1}, "of pods that are gone, too"


def kept(cluster: Kubelet, instance: Instance) -> str:
    """The names of the files in a pod's folder."""
    return cluster.run(instance, ["ls", "/kept"], {})


def test_a_pod_that_ends_by_itself_is_started_again(tmp_path: Path) -> None:
    with started(tmp_path) as cluster:
        first, _ = cluster.instances
        assert first.process is not None
        first.process.kill()
        cluster.wait_until(False, first)
        cluster.wait_until(True, first)
        assert first.restarts == 1


def test_nothing_is_left_behind_when_a_test_fails(tmp_path: Path) -> None:
    servers: list[int] = []

    def fail() -> None:
        with started(tmp_path) as cluster:
            servers.extend(pidfd(each) for each in cluster.instances)
            assert f"dk{os.getpid()}-hub" in namespaces()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(servers) == 2
    for server in servers:
        ended, _, _ = select.select([server], [], [], 60)
        assert ended, "a container has outlived its pod"
        os.close(server)
    assert f"dk{os.getpid()}-" not in namespaces()
