"""Starts the containers of rendered manifests as processes, without a cluster.

Each pod has a network namespace; names are in a hosts file; Secrets, ConfigMaps, empty folders and
claims are folders. Nothing in the manifests is changed. Of a container, its command, environment,
volumes and probes count; limits of resources, capabilities and network policies do not.
"""

import base64
import itertools
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.helm.chroot import USER, Chroot, output_of, terminate
from tests.helm.dockerfile import stages
from tests.helm.machine.node import Config, Endpoint, Probe, Service
from tests.helm.pods import Pod, pods
from tests.helm.tool import NAMESPACE, ROOT, Manifest, of_kind
from tests.helm.machine.wires import PREFIX, Wires

_PATH = {"PATH": stages()["dzflow"].variables["PATH"]}
_PATIENCE = 600.0  # seconds
_BACK_OFF = 2.0  # seconds until a container that has ended is started again


class Instance:
    """One pod: a container with its environment, files and address."""

    def __init__(self, pod: Pod, name: str, address: str, network: str) -> None:
        self.pod = pod
        self.name = name
        self.address = address
        self.network = network
        self.process: subprocess.Popen[str] | None = None
        self.restarts = 0  # because it has ended by itself

    @property
    def container(self) -> dict[str, Any]:
        """Its only container."""
        (found,) = self.pod.containers
        return found

    def endpoint(self) -> Endpoint:
        """Its address and its probes."""
        probes = self._probe("livenessProbe"), self._probe("readinessProbe")
        return Endpoint(self.name, self.address, *probes)

    def _probe(self, name: str) -> Probe:
        probe = self.container[name]
        (kind,) = {"httpGet", "tcpSocket", "grpc"} & set(probe)
        handler = probe[kind]
        return Probe(
            kind,
            self.pod.port(handler["port"]),
            handler.get("path", "/"),
            handler.get("scheme", "HTTP"),
            probe["periodSeconds"],
            probe["failureThreshold"],
        )


class Kubelet:
    """All pods of a rendering that run for long, and the node that they are on."""

    def __init__(
        self, objects: tuple[Manifest, ...], image: Chroot, wires: Wires, folder: Path
    ) -> None:
        self.objects = objects
        self._image = image
        self._folder = folder
        self._states: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready: dict[str, bool] = {}
        self._ended = threading.Event()
        self._keepers: list[threading.Thread] = []
        numbers = itertools.count(10)
        self.instances = [
            self._instance(pod, number, f"{PREFIX}.0.{next(numbers)}", wires)
            for pod in pods(objects)
            if pod.kind in ("Deployment", "StatefulSet")
            for number in range(of_kind(objects, pod.kind)[pod.name]["spec"]["replicas"])
        ]
        self.services = self._services()
        (folder / "hosts").write_text(self._hosts())
        (folder / "hosts").chmod(0o644)
        self.network = wires.add(f"{PREFIX}.0.2", *{each.address for each in self.services})
        self._node: subprocess.Popen[bytes] | None = None

    def _instance(self, pod: Pod, number: int, address: str, wires: Wires) -> Instance:
        return Instance(pod, f"{pod.name}-{number}", address, wires.add(address))

    # -- the node --------------------------------------------------------------------------------

    def _chosen(self, service: Manifest) -> list[Instance]:
        selector = dict(service["spec"]["selector"])
        name = selector.pop("statefulset.kubernetes.io/pod-name", None)
        return [
            each
            for each in self.instances
            if selector.items() <= each.pod.labels.items() and name in (None, each.name)
        ]

    def _services(self) -> list[Service]:
        numbers = itertools.count(10)
        found = []
        for service in of_kind(self.objects, "Service").values():
            if service["spec"].get("clusterIP") != "None":
                address = f"{PREFIX}.1.{next(numbers)}"
                chosen = self._chosen(service)
                for port in service["spec"]["ports"]:
                    target = chosen[0].pod.port(port["targetPort"])
                    names = [each.name for each in chosen]
                    found.append(Service(address, port["port"], target, names))
        return found

    def _hosts(self) -> str:
        lines = ["127.0.0.1 localhost"]
        addresses = iter(dict.fromkeys(each.address for each in self.services))
        for name, service in of_kind(self.objects, "Service").items():
            names = (name, f"{name}.{NAMESPACE}", f"{name}.{NAMESPACE}.svc")
            if service["spec"].get("clusterIP") != "None":
                lines.append(" ".join((next(addresses), *names)))
                continue
            for each in self._chosen(service):
                own = [f"{each.name}.{known}" for known in names[:1] + names[2:]]
                lines.append(" ".join((each.address, *own, *names)))
        return "\n".join(lines) + "\n"

    def address_of(self, service: str) -> str:
        """The address of a Service."""
        line = next(each for each in self._hosts().splitlines() if f" {service} " in f"{each} ")
        return line.split()[0]

    def start_node(self) -> None:
        """Begin to probe pods, and to pass connections to Services on."""
        config = Config([each.endpoint() for each in self.instances], self.services)
        command = ["ip", "netns", "exec", self.network, sys.executable, "-m", "tests.helm.machine.node"]
        self._node = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._node.stdin is not None
        self._node.stdin.write(msgspec.json.encode(config) + b"\n")
        self._node.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._node is not None
        assert self._node.stdout is not None
        for line in self._node.stdout:
            self._states.put(json.loads(line))

    def wait_until(self, ready: bool, *instances: Instance) -> None:
        """Wait until pods are ready, or not; fails with the logs of one that has ended."""
        wanted = {each.name for each in instances}
        while any(self._ready.get(name, False) != ready for name in wanted):
            try:
                state = self._states.get(timeout=_PATIENCE)
            except queue.Empty:
                late = [name for name in wanted if self._ready.get(name, False) != ready]
                raise AssertionError(f"not so: {late}\n{self.logs(late[0])}") from None
            self._ready[state["pod"]] = state["ready"]

    # -- pods ------------------------------------------------------------------------------------

    def start(self, instance: Instance) -> None:
        """Start the container of a pod; it is started again whenever it ends by itself."""
        started = threading.Event()
        # The process ends with the thread that has made it.
        keeper = threading.Thread(target=self._keep, args=(instance, started), daemon=True)
        self._keepers.append(keeper)
        keeper.start()
        assert started.wait(_PATIENCE)

    def _keep(self, instance: Instance, started: threading.Event) -> None:
        variables = self._variables(instance)
        command = [_expanded(word, variables) for word in instance.container["command"]]
        while True:
            with self.log(instance.name).open("a") as output:
                process = instance.process = self._image.start(
                    command,
                    {**_PATH, "PYTHONDONTWRITEBYTECODE": "1", **variables},
                    binds=self._binds(instance),
                    network=instance.network,
                    output=output,
                )
            started.set()
            if self._ended.is_set():
                process.kill()
            process.wait()
            if instance.process is not process or self._ended.wait(_BACK_OFF):
                return
            instance.restarts += 1

    def stop(self, instance: Instance) -> int:
        """Ask a pod to end; its exit code. It fails if that takes longer than it may."""
        process, instance.process = instance.process, None
        assert process is not None
        terminate(process)
        try:
            return process.wait(instance.pod.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def run(
        self, instance: Instance, command: list[str], variables: dict[str, str], check: bool = True
    ) -> str:
        """Run a command beside a pod, in its network, with its files; what it says.

        It must succeed if `check`.
        """
        process = self._image.start(
            command,
            {**_PATH, "HOME": "/tmp", **variables},  # noqa: S108 - of the pod
            binds=self._binds(instance),
            network=instance.network,
        )
        return output_of(process, _PATIENCE, check)

    def secret(self, name: str, key: str) -> str:
        """A value of a Secret."""
        data = of_kind(self.objects, "Secret")[name]["data"]
        return base64.b64decode(data[key]).decode()

    def logs(self, name: str) -> str:
        """The last that a pod has printed."""
        path = self.log(name)
        return path.read_text()[-4000:] if path.exists() else "no log"

    def end(self) -> None:
        """Kill everything."""
        self._ended.set()
        for each in self.instances:
            process, each.process = each.process, None
            if process is not None:
                process.kill()
        for keeper in self._keepers:
            keeper.join()
        if self._node is not None:
            assert self._node.stdin is not None
            assert self._node.stdout is not None
            self._node.stdin.close()
            self._node.wait()
            self._node.stdout.close()

    def log(self, name: str) -> Path:
        """The file with what a pod has printed."""
        return self._folder / f"{name}.log"

    def _variables(self, instance: Instance) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in instance.container.get("env", []):
            if "value" in each:
                found[each["name"]] = _expanded(str(each["value"]), found)
                continue
            source = each["valueFrom"]
            if "fieldRef" in source:
                fields = {"status.podIP": instance.address, "metadata.name": instance.name}
                found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
            else:
                reference = source["secretKeyRef"]
                data = of_kind(self.objects, "Secret")[reference["name"]]["data"]
                if reference["key"] in data or not reference.get("optional"):
                    value = base64.b64decode(data[reference["key"]])
                    found[each["name"]] = value.decode()
        return found

    def _binds(self, instance: Instance) -> dict[str, Path]:
        found = {"/etc/hosts": self._folder / "hosts"}
        volumes = {each["name"]: each for each in instance.pod.spec.get("volumes", [])}
        for mount in instance.container["volumeMounts"]:
            name = mount["name"]
            found[mount["mountPath"]] = self._volume(instance, name, volumes.get(name, {}))
        return found

    def _volume(self, instance: Instance, name: str, volume: dict[str, Any]) -> Path:
        path = self._folder / "volumes" / instance.name / name
        if path.exists():
            return path
        path.mkdir(parents=True)
        files: dict[str, bytes] = {}
        if "configMap" in volume:
            data = of_kind(self.objects, "ConfigMap")[volume["configMap"]["name"]]["data"]
            files = {key: text.encode() for key, text in data.items()}
        elif "secret" in volume:
            data = of_kind(self.objects, "Secret")[volume["secret"]["secretName"]]["data"]
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
            files = {each["path"]: base64.b64decode(data[each["key"]]) for each in items}
        for file, content in files.items():
            (path / file).write_bytes(content)
            _give(path / file, 0o440)
        _give(path, 0o2755 if files else 0o2777)
        return path


def _give(path: Path, mode: int) -> None:
    """As Kubernetes does with `fsGroup`: root's, and the group's."""
    os.chown(path, 0, USER)
    path.chmod(mode)


def _expanded(text: str, variables: dict[str, str]) -> str:
    """A text with `$(NAME)` replaced, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)


@contextmanager
def kubelet(
    objects: tuple[Manifest, ...], image: Chroot, wires: Wires, folder: Path
) -> Iterator[Kubelet]:
    """All pods, of which none is started yet; none is left in the end."""
    made = Kubelet(objects, image, wires, folder)
    try:
        yield made
    finally:
        made.end()
