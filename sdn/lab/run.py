"""Programs that the lab runs: their paths, and the error when one fails."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from dzflow.process.child_environment import child_environment
from sdn.lab.errors import LabCommandFailed

PACKAGES = {
    "ovsdb-tool": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-switch",
    "ovs-appctl": "openvswitch-switch",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "setpriv": "util-linux",
}
"""Every program that a lab needs, and the Debian package that has it."""

TIMEOUT = 60.0
"""How many seconds one program may take before it counts as failed."""


def find(program: str) -> str | None:
    """The path of a program, looked for where those of the superuser are, too."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    return shutil.which(program, path=path)


def located(argv: Sequence[str]) -> list[str]:
    """The command with its program's path."""
    path = find(argv[0])
    if path is None:
        package = PACKAGES.get(argv[0])
        raise LabCommandFailed(
            f"{argv[0]} is not on this machine; install {package or 'the package that has it'}"
        )
    return [path, *argv[1:]]


def bound(argv: Sequence[str]) -> list[str]:
    """The command such that the kernel kills it when the thread ends that started it."""
    command = located(argv)
    return [*located(["setpriv"]), "--pdeathsig", "KILL", "--", *command]


def run(
    argv: Sequence[str], stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its output; `LabCommandFailed` unless it succeeds."""
    shown = " ".join(argv)[:200]
    try:
        # Programs and options are our own; names in them come from a checked topology.
        done = subprocess.run(  # noqa: S603
            bound(argv),
            input=stdin,
            env={**child_environment(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabCommandFailed(f"no answer within {TIMEOUT:.0f} s from: {shown}") from None
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise LabCommandFailed(f"{said[:2000]} (from: {shown})")
    return done
