"""An embedded etcd: one member on this machine, which ends with the process that started it.

It listens at unix sockets in its data folder, which only the owner can enter: other users of the
machine and web pages have nothing to connect to, neither for clients nor for other members. It
serves no JSON gateway.
"""

import fcntl
import http.client
import logging
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from msgspec import Struct

from configurators.store.etcd.connection import Access
from configurators.store.etcd.endpoints import UNIX, ReachableSocket
from configurators.store.etcd.errors import StoreError
from configurators.store.server.binary import Binary, NoEtcd, find_etcd
from configurators.store.server.tether import tethered
from dzflow.process.child_environment import child_environment
from dzflow.process.private_files import private_opener

__all__ = ["Binary", "EtcdFailed", "EtcdServer", "NoEtcd", "TlsPorts", "find_etcd", "free_ports"]

_log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_GIB = 1 << 30
_LOG_LIMIT = 8 << 20
_POLL = 0.02
# Relative to etcd's working folder. etcd 3.4 asks for the form host:port even of a socket.
_CLIENT_SOCKET, _PEER_SOCKET = "client:1", "peer:1"
_STOP_SECONDS = 10.0
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 20_000  # Ray's workers may be below
_PORT_TRIES = 200


class EtcdFailed(StoreError):
    """etcd does not start, or has ended; the message has the end of its log."""


class TlsPorts(Struct, frozen=True):
    """Ports on loopback, for clients and for other members. Both sides present a certificate."""

    client: int
    peer: int
    ca: str  # PEM files
    cert: str
    key: str


class EtcdServer:
    """One member; no other user can connect to it, or read its files in `data_dir`.

    It may be killed and started again: endpoint and data stay. `options` are etcd's own flags, and
    take precedence. A member of a cluster listens at `tls_ports` instead of unix sockets. With
    `fsync` off, a crash of the machine loses data: for tests.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        quota: int = 4 * _GIB,
        retention: str = "2m",
        fsync: bool = True,
        options: Sequence[str] = (),
        tls_ports: TlsPorts | None = None,
        binary: Binary | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.binary = binary or find_etcd()
        self.log = self.data_dir / "etcd.log"
        self.tls_ports = tls_ports
        self._quota, self._retention, self._fsync = quota, retention, fsync
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._log_start = 0

    @property
    def endpoint(self) -> str:
        """Where clients connect: `unix:PATH`, or host:port with `tls_ports`."""
        if self.tls_ports is not None:
            return f"{_HOST}:{self.tls_ports.client}"
        return f"{UNIX}{self.data_dir / _CLIENT_SOCKET}"

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def access(self, prefix: str = "dzflow/", timeout: float = 10.0) -> Access:
        """How it is reached."""
        if (tls := self.tls_ports) is None:
            return Access((self.endpoint,), prefix, timeout=timeout)
        return Access(
            (self.endpoint,), prefix, ca=tls.ca, cert=tls.cert, key=tls.key, timeout=timeout
        )

    def start(self, timeout: float = 60.0) -> None:
        """Start it and return when it serves; EtcdFailed if it does not in time."""
        self.launch()
        self.wait(timeout)

    def launch(self) -> None:
        """Start it, without waiting."""
        if self.pid is not None:
            return
        if not self.binary.safe:
            _log.warning(
                "etcd %s may lose data when it is killed; `make etcd` gets another version",
                ".".join(map(str, self.binary.version)),
            )
        self._make_folder()
        self._lock_data()
        for name in (_CLIENT_SOCKET, _PEER_SOCKET):  # an etcd that was killed leaves them behind
            (self.data_dir / name).unlink(missing_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        started = threading.Event()
        # The kernel kills the program when the thread that started it ends: keep the thread.
        threading.Thread(target=self._run, args=(started,), name="etcd-keeper", daemon=True).start()
        started.wait()
        if self._process is None:
            raise EtcdFailed(f"{self.binary.path} cannot be run")

    def wait(self, timeout: float = 60.0) -> None:
        """Return when it serves; EtcdFailed if it does not in time, or has ended."""
        deadline = time.monotonic() + timeout
        trouble = "it was not started"
        while (process := self._process) is not None:
            if process.poll() is not None:
                self._unlock_data()
                raise EtcdFailed(f"etcd has ended with {process.returncode}:\n{self._log_end()}")
            answer = self._health()
            if answer is None:
                return
            trouble = answer
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL)
        self.kill()
        raise EtcdFailed(f"etcd does not serve within {timeout:g} s: {trouble}\n{self._log_end()}")

    def kill(self) -> None:
        """Kill it, as in a crash."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop its execution, as on a machine that is overloaded or cut off."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)  # all its threads

    def resume(self) -> None:
        """Continue after `pause`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Terminate it, and wait until it has ended."""
        self._end(signal.SIGTERM)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)  # it may have been paused
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._unlock_data()

    def _run(self, started: threading.Event) -> None:
        process = None
        try:
            with open(self.log, "ab", opener=private_opener) as log:
                # `find_etcd` has found the program; its flags are ours or the operator's.
                process = subprocess.Popen(  # noqa: S603
                    tethered(self._command()),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.data_dir,
                    umask=0o077,  # its sockets and files are the owner's alone
                    start_new_session=True,  # Ctrl-C is for us; we terminate etcd ourselves
                    env=_environment(),
                )
                self._process = process
        finally:
            started.set()
        process.wait()

    def _command(self) -> list[str]:
        if (tls := self.tls_ports) is None:
            client, peer = f"unix://{_CLIENT_SOCKET}", f"unix://{_PEER_SOCKET}"
        else:
            client, peer = f"https://{_HOST}:{tls.client}", f"https://{_HOST}:{tls.peer}"
        version = self.binary.version
        notify = "watch-progress-notify-interval"
        flags = {
            "name": "dzflow",
            "data-dir": str(self.data_dir / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"dzflow={peer}",
            "enable-grpc-gateway": "false",
            # A single member elects itself: no need for long timeouts.
            "heartbeat-interval": "20",
            "election-timeout": "200",
            "quota-backend-bytes": str(self._quota),
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": self._retention,
            # Watches of prefixes that seldom change must keep up with compaction.
            notify if version >= (3, 6, 0) else f"experimental-{notify}": "30s",
            "max-txn-ops": "1024",
            "max-request-bytes": str(8 << 20),
            # etcd keeps the log since the last snapshot in memory.
            "snapshot-count": "2000",
            "logger": "zap",
            "log-level": "warn",
        }
        if tls is not None:
            for side in ("", "peer-"):
                flags |= {f"{side}trusted-ca-file": tls.ca, f"{side}client-cert-auth": "true"}
                flags |= {f"{side}cert-file": tls.cert, f"{side}key-file": tls.key}
        if not self._fsync:
            flags["unsafe-no-fsync"] = "true"
        if not self.binary.safe:
            flags["experimental-initial-corrupt-check"] = "true"
        return [
            self.binary.path,
            *(f"--{name}={value}" for name, value in flags.items()),
            *self._options,
        ]

    def _health(self) -> str | None:
        """Why it does not serve; None if it does."""
        try:
            connection = self._connect()
            try:
                # A member at its quota serves, too: dispatchers make room in it.
                connection.request("GET", "/health?exclude=NOSPACE")
                said = connection.getresponse().read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        return None if b'"true"' in said else said.decode(errors="replace")

    def _connect(self) -> http.client.HTTPConnection:
        if (tls := self.tls_ports) is None:
            return _UnixConnection(self.data_dir / _CLIENT_SOCKET, timeout=1)
        context = ssl.create_default_context(cafile=tls.ca)
        context.load_cert_chain(tls.cert, tls.key)
        return http.client.HTTPSConnection(_HOST, tls.client, context=context, timeout=1)

    def _make_folder(self) -> None:
        """Make the data folder, for its owner alone; EtcdFailed if another user owns it."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self.data_dir.stat().st_uid
            if owner != os.geteuid():
                raise EtcdFailed(
                    f"{self.data_dir} belongs to another user (id {owner}), who could read and"
                    " change the state; give it to the user of the service, or use another folder"
                )
            self.data_dir.chmod(0o700)
        except OSError as error:
            raise EtcdFailed(f"{self.data_dir} cannot be used: {error.strerror}") from None

    def _lock_data(self) -> None:
        """Lock the data; a second etcd would wait silently for the first one."""
        if self._lock is not None:
            return
        lock = (self.data_dir / "lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise EtcdFailed(
                f"{self.data_dir} is in use by another process; stop it, or use another folder"
            ) from None
        self._lock = lock

    def _unlock_data(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _log_end(self) -> str:
        try:
            text = self.log.read_bytes()
            if len(text) >= self._log_start:  # it is shorter if it was trimmed since the start
                text = text[self._log_start :]
            return text[-3000:].decode(errors="replace").strip()
        except OSError as error:
            return str(error)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        reachable = ReachableSocket(self._path)
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(reachable.path)
        finally:
            reachable.close()


def _environment() -> dict[str, str]:
    # Go's idle threads search for work, and take time from other processes of the machine.
    found = {"GOMAXPROCS": str(max(1, len(os.sched_getaffinity(0)) // 2))}
    # etcd also reads flags from the environment; those of another etcd are not among these.
    return found | child_environment()


def free_ports(count: int) -> list[int]:
    """Different free ports on loopback.

    They are outside the kernel's ephemeral range if possible: a connection of any process could
    take an ephemeral port before it is used, or while the listening process restarts.
    """
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            _bind_anywhere(sock)
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def _bind_anywhere(sock: socket.socket) -> None:
    end = _first_ephemeral()
    for _ in range(_PORT_TRIES if end > _LOWEST_PORT else 0):
        try:
            sock.bind((_HOST, random.randrange(_LOWEST_PORT, end)))  # noqa: S311 - no secret
        except OSError:
            continue
        return
    sock.bind((_HOST, 0))


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError):
        return 0  # not known
