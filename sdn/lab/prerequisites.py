"""Whether this machine can run a lab, and what to do if not."""

import os
import sys

from sdn.lab.errors import LabCommandFailed, LabUnavailable
from sdn.lab.namespaces import in_new_namespace
from sdn.lab.run import PACKAGES, find, run

# What every host of a lab needs, tried out where it leaves no trace.
_TRIAL = """\
link add v0 type veth peer name v1
link set v0 up
addr add fd00:d2::1/64 dev v0 nodad
"""


def missing_prerequisites() -> list[str]:
    """What keeps this machine from running a lab, each with what to do; empty if nothing does."""
    if sys.platform != "linux":
        return ["this is not Linux; use the emulated switches instead"]
    missing = []
    if os.geteuid() != 0:
        missing.append("this is not root; use sudo, or the emulated switches, which need no rights")
    packages: dict[str, list[str]] = {}
    for program, package in PACKAGES.items():
        if find(program) is None:
            packages.setdefault(package, []).append(program)
    for package, programs in packages.items():
        missing.append(f"no {', '.join(programs)}; apt-get install {package}")
    return missing or _namespaces()


def require() -> None:
    """Raise `LabUnavailable` if the machine cannot run a lab."""
    if missing := missing_prerequisites():
        raise LabUnavailable(f"this machine cannot run a lab: {'; '.join(missing)}")


def _namespaces() -> list[str]:
    try:
        in_new_namespace(lambda: run(["ip", "-batch", "-"], _TRIAL))
    except OSError as error:
        return [f"network namespaces are not allowed ({error}); a container needs --privileged"]
    except LabCommandFailed as error:
        return [f"no veth pair with an IPv6 address can be made: {error}"]
    return []
