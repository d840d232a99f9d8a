"""What Ray must find in the environment of the process that imports it, and where its files go."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from api.start.settings import Settings
from dzflow.errors import DzflowError

_LONGEST = 40  # characters of a folder, for its sockets' paths to stay below the kernel's 107

_OWN = {
    "RAY_AUTH_MODE": "token",
    # Everything of the own Ray listens on loopback only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    # A head that has died does not come back by itself: the sooner all is started anew, the better.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    # Workers are not killed because some other program needs memory.
    "RAY_memory_monitor_refresh_ms": "0",
    # What nobody looks at is not collected.
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_metrics_report_interval_ms": "600000",
    "RAY_event_stats": "0",
}


class NoRay(DzflowError):
    """Ray cannot be started or joined."""


def environment(settings: Settings, token: Path) -> dict[str, str]:
    """The environment of a process that uses Ray; `token` is the file with an own Ray's token."""
    found = dict(os.environ)
    if settings.ray.address is None:
        found = {name: value for name, value in found.items() if not name.startswith("RAY_")}
        return {**found, **_OWN, "RAY_AUTH_TOKEN_PATH": str(token.absolute())}
    if settings.ray.token_path:
        found["RAY_AUTH_MODE"] = "token"
        found["RAY_AUTH_TOKEN_PATH"] = str(settings.ray.token_path.absolute())
    return found


def folder_of(data_dir: Path) -> Path:
    """Where an own Ray keeps its sockets, whose paths must be short: the same at each start."""
    name = hashlib.sha256(str(data_dir.absolute()).encode()).hexdigest()[:10]
    folder = Path(tempfile.gettempdir()) / f"dzflow-ray-{os.getuid()}-{name}"
    if len(str(folder)) > _LONGEST:
        folder = Path("/tmp") / folder.name  # noqa: S108 - it is made private below
    return folder


def temporary_folder(data_dir: Path) -> Path:
    """Make that folder; what an earlier start left there is removed.

    Give Ray a folder below it: it lets everybody into the one that it is given.
    """
    folder = folder_of(data_dir)
    if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.getuid()):
        raise NoRay(f"{folder} belongs to somebody else; remove it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder
