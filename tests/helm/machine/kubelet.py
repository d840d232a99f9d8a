"""Starts the containers of rendered manifests as processes, without a cluster.

Each pod has a network namespace; names are in a hosts file; Secrets, ConfigMaps, empty folders and
claims are folders. Nothing in the manifests is changed. Of a container, its command, environment,
volumes and probes count; limits of resources and capabilities do not.

Network policies are enforced (`firewall.py`).
"""

import itertools
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.helm.chroot import Chroot, output_of, terminate
from tests.helm.dockerfile import stages
from tests.helm.machine.files import Files
from tests.helm.machine.firewall import Firewall
from tests.helm.machine.instance import Instance
from tests.helm.machine.node import Config, Service
from tests.helm.machine.wires import PREFIX, Wires
from tests.helm.pods import Pod, pods
from tests.helm.tool import NAMESPACE, ROOT, Manifest, of_kind

_PATH = {"PATH": stages()["dzflow"].variables["PATH"]}
_PATIENCE = 600.0  # seconds
_BACK_OFF = 2.0  # seconds until a container that has ended is started again
_HOSTS = 4000  # bytes of the hosts file: it is replaced by one write
_NODE = f"{PREFIX}.0.2"


class Kubelet:
    """All pods of a rendering that run for long, and the node that they are on."""

    def __init__(
        self, objects: tuple[Manifest, ...], image: Chroot, wires: Wires, folder: Path
    ) -> None:
        self.objects = objects
        self._image = image
        self._wires = wires
        self._folder = folder
        self._states: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready: dict[str, bool] = {}
        self._ended = threading.Event()
        self._keepers: list[threading.Thread] = []
        self._numbers = itertools.count(10)
        hosts = folder / "hosts"
        self._passing: list[Instance] = []  # pods that end by themselves
        self._firewall = Firewall(objects, wires, _NODE)
        self._files = Files(objects, folder / "claims", hosts)
        self.instances = [
            self._create(pod, f"{pod.name}-{number}")
            for pod in pods(objects)
            if pod.kind in ("Deployment", "StatefulSet")
            for number in range(of_kind(objects, pod.kind)[pod.name]["spec"]["replicas"])
        ]
        addresses = itertools.count(10)
        self._addresses = {
            name: f"{PREFIX}.1.{next(addresses)}"
            for name, service in of_kind(objects, "Service").items()
            if service["spec"].get("clusterIP") != "None"
        }
        hosts.touch()
        hosts.chmod(0o644)
        self._announce()
        self.network = wires.add(_NODE, *self._addresses.values())
        self._node: subprocess.Popen[bytes] | None = None

    def _create(self, pod: Pod, name: str) -> Instance:
        number = next(self._numbers)
        address = f"{PREFIX}.0.{number}"
        folder = self._folder / "volumes" / f"{name}-{number}"
        network = self._wires.add(address)
        self._firewall.add(pod.role, network)
        return Instance(pod, name, address, network, folder)

    def _announce(self) -> None:
        """Let names and policies follow the pods that there are."""
        self._write_hosts()
        self._firewall.follow([*self.instances, *self._passing], self._services())

    def _disconnect(self, gone: Instance) -> None:
        self._firewall.remove(gone)
        self._wires.remove(gone.network)

    def refused(self) -> dict[str, int]:
        """By role, how many connections that no policy allows pods have tried to make."""
        return self._firewall.refused(self.instances)

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
        found = []
        for name, address in self._addresses.items():
            service = of_kind(self.objects, "Service")[name]
            role = service["spec"]["selector"]["dzflow/role"]
            pod = next(each for each in pods(self.objects) if each.role == role)
            names = [each.name for each in self._chosen(service)]
            found += [
                Service(address, port["port"], pod.port(port["targetPort"]), names)
                for port in service["spec"]["ports"]
            ]
        return found

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost"]
        lines += [f"{each.address} {each.name}" for each in (*self.instances, *self._passing)]
        for name, service in of_kind(self.objects, "Service").items():
            names = (name, f"{name}.{NAMESPACE}", f"{name}.{NAMESPACE}.svc")
            if address := self._addresses.get(name):
                lines.append(" ".join((address, *names)))
                continue
            for each in self._chosen(service):
                own = [f"{each.name}.{known}" for known in names[:1] + names[2:]]
                lines.append(" ".join((each.address, *own, *names)))
        text = "\n".join(lines)
        assert len(text) < _HOSTS
        # In place: pods have this very file. Who reads it sees the one or the other.
        with (self._folder / "hosts").open("r+b", buffering=0) as file:
            file.write(text.encode().ljust(_HOSTS, b"\n"))

    def address_of(self, service: str) -> str:
        """The address of a Service."""
        return self._addresses[service]

    def start_node(self) -> None:
        """Begin to probe pods, and to pass connections to Services on."""
        command = ["ip", "netns", "exec", self.network, sys.executable]
        command += ["-m", "tests.helm.machine.node"]
        self._node = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._tell_node()
        threading.Thread(target=self._listen, daemon=True).start()

    def _tell_node(self) -> None:
        """Tell the node which pods there are."""
        assert self._node is not None
        assert self._node.stdin is not None
        config = Config([each.endpoint() for each in self.instances], self._services())
        self._node.stdin.write(msgspec.json.encode(config) + b"\n")
        self._node.stdin.flush()

    def _listen(self) -> None:
        assert self._node is not None
        assert self._node.stdout is not None
        for line in self._node.stdout:
            self._states.put(json.loads(line))

    def wait_until(self, ready: bool, *instances: Instance) -> None:
        """Wait until pods are ready, or not; fails with the logs of one that is not so."""
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
        while True:
            with self.log(instance.name).open("a") as output:
                process = instance.process = self._begin(self._image, instance, output)
            started.set()
            if self._ended.is_set():
                process.kill()
            process.wait()
            if instance.process is not process or self._ended.wait(_BACK_OFF):
                return
            instance.restarts += 1

    def _begin(self, image: Chroot, instance: Instance, output: Any) -> "subprocess.Popen[str]":
        return image.start(
            self._files.command(instance),
            {**_PATH, "PYTHONDONTWRITEBYTECODE": "1", **self._files.variables(instance)},
            binds=self._files.binds(instance),
            fixed=self._files.fixed(instance),
            network=instance.network,
            name=instance.name,
            output=output,
        )

    def stop(self, instance: Instance) -> None:
        """Ask a pod to end; it fails if that takes longer than it may."""
        process, instance.process = instance.process, None
        assert process is not None
        terminate(process)
        try:
            instance.code = process.wait(instance.pod.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def replace(self, old: Instance) -> Instance:
        """Replace a pod as an update of its object does; the new one is ready, at a new address.

        A Deployment has another pod before the old one ends, unless it says otherwise; a pod of a
        StatefulSet keeps its name and its claims.
        """
        spec = of_kind(self.objects, old.pod.kind)[old.pod.name]["spec"]
        if old.pod.kind == "StatefulSet":
            return self._end_and_begin(old, old.name)
        name = f"{old.pod.name}-{next(self._numbers)}"
        if spec["strategy"]["type"] == "Recreate":
            return self._end_and_begin(old, name)
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        new = self._add(old.pod, name)
        self.wait_until(True, new)
        self._remove(old)
        return new

    def _end_and_begin(self, old: Instance, name: str) -> Instance:
        self._remove(old)
        new = self._add(old.pod, name)
        self.wait_until(True, new)
        return new

    def _add(self, pod: Pod, name: str) -> Instance:
        new = self._create(pod, name)
        self.instances.append(new)
        self._announce()
        self._tell_node()
        self.start(new)
        return new

    def _remove(self, old: Instance) -> None:
        """End a pod; its address is gone afterwards."""
        self.stop(old)
        self.instances.remove(old)
        self._announce()
        self._tell_node()
        self.wait_until(False, old)
        self._disconnect(old)

    def run_pod(self, pod: Pod, image: Chroot | None = None, check: bool = True) -> str:
        """Run a pod that ends by itself, of an image; what it says. It must succeed if `check`."""
        instance = self._create(pod, f"{pod.name}-{next(self._numbers)}")
        self._passing.append(instance)
        self._announce()
        try:
            process = self._begin(image or self._image, instance, subprocess.PIPE)
            return output_of(process, _PATIENCE, check)
        finally:
            self._passing.remove(instance)
            self._announce()
            self._disconnect(instance)

    def run(
        self, instance: Instance, command: list[str], variables: dict[str, str], check: bool = True
    ) -> str:
        """Run a command beside a pod, in its network, with its files; what it says.

        It must succeed if `check`.
        """
        process = self._image.start(
            command,
            {**_PATH, "HOME": "/tmp", **variables},  # noqa: S108 - of the pod
            binds=self._files.binds(instance),
            network=instance.network,
        )
        return output_of(process, _PATIENCE, check)

    def secret(self, name: str, key: str) -> str:
        """A value of a Secret."""
        return self._files.secret(name, key)

    def logs(self, name: str) -> str:
        """The last that a pod has printed."""
        path = self.log(name)
        return path.read_text()[-4000:] if path.exists() else "no log"

    def printed(self) -> dict[str, str]:
        """Everything that pods have printed, by their names."""
        return {path.stem: path.read_text() for path in self._folder.glob("*.log")}

    def log(self, name: str) -> Path:
        """The file with what a pod has printed."""
        return self._folder / f"{name}.log"

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
