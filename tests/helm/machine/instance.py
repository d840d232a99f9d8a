"""One pod on the machine."""

import subprocess
from pathlib import Path
from typing import Any

from tests.helm.machine.node import Endpoint, Probe
from tests.helm.pods import Pod


class Instance:
    """A pod with its address: a container with its environment and files."""

    def __init__(self, pod: Pod, name: str, address: str, network: str, folder: Path) -> None:
        """`network` is its namespace, and `folder` has what ends with it."""
        self.pod = pod
        self.name = name
        self.address = address
        self.network = network
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.restarts = 0  # because its container has ended by itself
        self.code: int | None = None  # of the container that was told to end

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
