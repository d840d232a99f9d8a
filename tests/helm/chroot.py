"""A folder as the root of processes, beside the system's programs: an image without Docker.

The system's folders are mounted read-only, in a mount namespace that ends with its processes. Needs
root.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
# The build fetches packages: it needs names and certificates. What runs later does not. Java is
# found by way of `alternatives`, and has its settings in /etc.
_FILES = ("etc/resolv.conf", "etc/hosts", "etc/nsswitch.conf", "etc/ssl", "etc/ld.so.cache")
_JAVA = ("etc/alternatives", "etc/java-*-openjdk")
_PASSED = ("PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "NO_", "http", "https", "no_")

_PROGRAMS = ("unshare", "chroot", "setpriv", "ip")

USER = 10001

_MOUNT = r"""
set -eu
root=$1; user=$2; mode=$3; shift 3
[ -z "$NAME" ] || echo "$NAME" >/proc/sys/kernel/hostname
mount --bind "$root" "$root"
for at in $MOUNTS; do mount --bind "/$at" "$root/$at"; mount -o remount,bind,ro "$root/$at"; done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for at in tmp data; do mount -t tmpfs -o mode=1777 tmpfs "$root/$at"; done
for each in $BINDS; do mount --bind "${each%%:*}" "$root${each#*:}"; done
for at in $FIXED; do mount -o remount,bind,ro "$root$at"; done
[ "$mode" = ro ] && mount -o remount,bind,ro "$root"
# A change of the user forgets the signal of --kill-child, so it is asked for again.
set -- --pdeathsig KILL --reuid "$user" --regid "$user" --clear-groups "$@"
exec chroot "$root" /usr/bin/setpriv "$@"
"""


def missing() -> str | None:
    """Why there can be no such root here; None if there can."""
    if os.geteuid() != 0:
        return "only root may mount folders and change the root"
    if lacking := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"missing: {', '.join(lacking)}"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "this machine allows no mount namespaces" if tried.returncode else None


class Chroot:
    """The folder, and what is run in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mounts: list[str] = []
        for name in _SYSTEM:
            self._add_system(name)
        for name in _FILES:
            if (source := Path("/", name)).exists():
                self._add_mount(name, source.is_dir())
        for pattern in _JAVA:
            for source in Path("/").glob(pattern):
                self._add_mount(str(source).lstrip("/"), True)
        base = Path(sys.base_prefix)
        if not base.is_relative_to("/usr"):
            self._add_mount(str(base).lstrip("/"), True)
        self.python = str(base / "bin" / "python3")
        for name in ("proc", "dev", "tmp", "data"):
            (root / name).mkdir()

    def _add_system(self, name: str) -> None:
        source = Path("/", name)
        if source.is_symlink():
            (self.root / name).symlink_to(os.readlink(source))
        elif source.is_dir():
            self._add_mount(name, True)

    def _add_mount(self, name: str, is_folder: bool) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            target.mkdir()
        else:
            target.touch()
        self._mounts.append(name)

    def start(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        user: int = USER,
        writable: bool = False,
        folder: str = "/tmp",  # noqa: S108 - of its own
        binds: Mapping[str, Path] | None = None,
        fixed: Sequence[str] = (),
        network: str | None = None,
        name: str = "",
        output: IO[str] | int = subprocess.PIPE,
    ) -> "subprocess.Popen[str]":
        """Start a command in it, as a user, with nothing in its environment but these variables.

        /tmp and /data are empty, and go when it ends; all else is read-only unless `writable`.
        It ends with the thread that has started it. `binds` are files and folders that it has at
        other paths, and `fixed` the paths of those that are read-only; `network` names a namespace.
        `name` is that of its machine.
        """
        # Nothing outlives the thread that has started it, nor this process.
        outer = ["setpriv", "--pdeathsig", "KILL"]
        outer += [
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            _MOUNT,
            "sh",
        ]
        at = [str(self.root), str(user), "rw" if writable else "ro"]
        inner = ["/usr/bin/env", "-i", f"--chdir={folder}"]
        inner += [f"{name}={value}" for name, value in variables.items()]
        for target, source in (binds or {}).items():
            self._make_place(target, source.is_dir())
        where = ["ip", "netns", "exec", network] if network else []
        mounts = {
            "MOUNTS": " ".join(self._mounts),
            "BINDS": " ".join(f"{source}:{target}" for target, source in (binds or {}).items()),
            "FIXED": " ".join(fixed),
            "NAME": name,
        }
        return subprocess.Popen(
            [*outer[:3], *where, *outer[3:], *at, *inner, *command],
            env={**os.environ, **mounts},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _make_place(self, target: str, is_folder: bool) -> None:
        place = self.root / target.lstrip("/")
        if place.is_relative_to(self.root / "dev") or place.exists():
            return  # there already, or in what is mounted
        place.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            place.mkdir()
        else:
            place.touch()

    def build(self, command: str, folder: str, timeout: float) -> str:
        """Run a step of the build as root, with the network; what it says."""
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "PYTHON": self.python}
        variables |= {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
        # What was fetched before need not be fetched again.
        cache = Path.home() / ".cache"
        cache.mkdir(exist_ok=True)
        binds = {"/root/.cache": cache}
        process = self.start(["sh", "-c", command], variables, 0, True, folder, binds)
        return output_of(process, timeout)


def output_of(process: "subprocess.Popen[str]", timeout: float, check: bool = True) -> str:
    """What a command has said when it ends, well if `check`; it is killed after the timeout."""
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert not check or process.returncode == 0, said
    return said


def terminate(process: "subprocess.Popen[str]") -> None:
    """Ask the command that was started to end, as Kubernetes does."""
    os.kill(child(process), signal.SIGTERM)


def child(process: "subprocess.Popen[str]") -> int:
    """The process of the command itself, which is the first in its namespace."""
    pid = process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])
