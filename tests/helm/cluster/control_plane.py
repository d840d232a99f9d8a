"""A Kubernetes control plane on loopback: real, but for its nodes, which kwok plays.

Its processes end with the one that has started them. `make kubernetes` builds the program.
"""

import json
import secrets
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from ssl import create_default_context

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from configurators.store.server.server import free_ports
from configurators.store.server.tether import tethered
from dzflow.process.child_environment import child_environment
from tests.helm.tool import ROOT, Manifest, helm_path, needs_helm
from tests.service import eventually

PROGRAM = ROOT / ".tools" / "kubernetes"
_HERE = Path(__file__).parent
_HOST = "127.0.0.1"
_END = 10.0  # seconds until a process that was told to end is killed
_TIMEOUT = 300.0  # of one command

needs_cluster = [
    pytest.mark.cluster,
    needs_helm,
    pytest.mark.skipif(
        not PROGRAM.exists(), reason="there is no Kubernetes here; `make kubernetes` builds it"
    ),
]


class ControlPlane:
    """How to use a control plane: `kubectl` and `helm` with its address and an operator's token."""

    def __init__(self, folder: Path, port: int, token: str) -> None:
        self.folder = folder
        self.url = f"https://{_HOST}:{port}"
        self.token = token
        self.authority = folder / "certificates" / "apiserver.crt"
        self.kubeconfig = folder / "kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.touch(0o600)  # Helm warns if others can read it
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def is_ready(self) -> bool:
        """Whether the API server is."""
        if not self.authority.exists():
            return False
        request = urllib.request.Request(  # noqa: S310 - our own address
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"}
        )
        context = create_default_context(cafile=str(self.authority))
        try:
            with urllib.request.urlopen(request, timeout=5, context=context):  # noqa: S310
                return True
        except OSError:  # not yet; also when it answers that it is not ready
            return False

    def kubectl(self, *words: str, given: str = "") -> str:
        """What kubectl says; AssertionError if it fails."""
        done = self.try_kubectl(*words, given=given)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def try_kubectl(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run kubectl, with `given` as its input."""
        return self._run([str(PROGRAM), "kubectl", *words], given)

    def get(self, kind: str, *words: str) -> list[Manifest]:
        """All objects of a kind; `words` are further options of `kubectl get`."""
        found: list[Manifest] = json.loads(self.kubectl("get", kind, "-o", "json", *words))["items"]
        return found

    def helm(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run Helm."""
        path = helm_path()
        assert path is not None
        return self._run([path, *words], "")

    def _run(self, argv: Sequence[str], given: str) -> "subprocess.CompletedProcess[str]":
        homes = {
            f"HELM_{name}_HOME": str(self.folder / "helm") for name in ("CACHE", "CONFIG", "DATA")
        }
        environment = {**child_environment(), **homes, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            argv, input=given, capture_output=True, text=True, timeout=_TIMEOUT, env=environment
        )


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """A control plane with two nodes; its data are in the folder, and nothing is left running."""
    etcd, peer, port, controllers, scheduler, kwok = free_ports(6)
    folder.mkdir(exist_ok=True)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f"{token},admin,1,system:masters\n")
    key = folder / "service-accounts.pem"
    key.write_bytes(_private_key())
    made = ControlPlane(folder, port, token)
    certificates = str(made.authority.parent)
    with ExitStack() as stack:

        def start(name: str, **flags: str) -> None:
            stack.enter_context(_running(folder, name, flags))

        start(
            "etcd",
            data_dir=str(folder / "etcd"),
            listen_client_urls=f"http://{_HOST}:{etcd}",
            advertise_client_urls=f"http://{_HOST}:{etcd}",
            listen_peer_urls=f"http://{_HOST}:{peer}",
            initial_advertise_peer_urls=f"http://{_HOST}:{peer}",
            initial_cluster=f"default=http://{_HOST}:{peer}",
            unsafe_no_fsync="true",
            log_level="warn",
        )
        start(
            "kube-apiserver",
            etcd_servers=f"http://{_HOST}:{etcd}",
            bind_address=_HOST,
            secure_port=str(port),
            advertise_address=_HOST,
            endpoint_reconciler_type="none",
            cert_dir=certificates,
            token_auth_file=str(folder / "tokens.csv"),
            anonymous_auth="false",
            authorization_mode="Node,RBAC",
            service_account_issuer=made.url,
            service_account_signing_key_file=str(key),
            service_account_key_file=str(key),
            service_cluster_ip_range="10.96.0.0/16",
        )
        eventually(made.is_ready, "the API server is ready")
        start(
            "kube-controller-manager",
            kubeconfig=str(made.kubeconfig),
            bind_address=_HOST,
            secure_port=str(controllers),
            cert_dir=certificates,
            leader_elect="false",
            controllers="*,-kube-apiserver-serving-clustertrustbundle-publisher-controller",
            service_account_private_key_file=str(key),
            root_ca_file=str(made.authority),
            use_service_account_credentials="true",
            # The objects of a namespace are gone sooner.
            concurrent_namespace_syncs="20",
        )
        start(
            "kube-scheduler",
            kubeconfig=str(made.kubeconfig),
            bind_address=_HOST,
            secure_port=str(scheduler),
            cert_dir=certificates,
            leader_elect="false",
        )
        start(
            "kwok",
            kubeconfig=str(made.kubeconfig),
            config=str(_HERE / "nodes.yaml"),
            manage_all_nodes="true",
            node_ip="192.0.2.1",
            node_port="0",
            node_lease_duration_seconds="40",
            server_address=f"{_HOST}:{kwok}",
            cidr="10.244.0.1/16",
        )
        made.kubectl("create", "-f", str(_HERE / "objects.yaml"))
        made.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=120s")
        yield made


@contextmanager
def _running(folder: Path, name: str, flags: dict[str, str]) -> Iterator[None]:
    words = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            tethered([str(PROGRAM), name, *words]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=child_environment(),
        )
    try:
        yield
    except BaseException as error:
        end = log.read_text(errors="replace")[-2000:]
        error.add_note(f"{name} ({'ended' if process.poll() is not None else 'runs'}): {end}")
        raise
    finally:
        process.terminate()
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _private_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
