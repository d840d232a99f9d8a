"""The environment of processes that import Ray, and the folder of Ray's files."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from api.start.settings.settings import Settings
from dzflow.errors import DzflowError
from dzflow.process.child_environment import child_environment

_LONGEST = 40  # characters of a folder, for its sockets' paths to stay below the kernel's 107

_OWN_RAY = {
    "RAY_AUTH_MODE": "token",
    # Ray then listens on loopback only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    # A dead head does not restart by itself; we restart everything, the sooner the better.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    # Ray does not kill workers because another program needs memory.
    "RAY_memory_monitor_refresh_ms": "0",
    # No metrics and events: nobody reads them.
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_metrics_report_interval_ms": "600000",
    "RAY_event_stats": "0",
}


_SECRETS = frozenset({"RAY_AUTH_TOKEN", "RAY_REDIS_PASSWORD", "RAY_JOB_HEADERS"})


class NoRay(DzflowError):
    """Ray cannot be started or joined."""


class RayLost(DzflowError):
    """The service's own Ray has ended; only a restart of the process that started it helps."""


def environment(settings: Settings, token: Path | None) -> dict[str, str]:
    """The environment of a process that uses Ray; `token` is the file with its token."""
    found = child_environment(settings.pass_variables)
    if settings.ray.address is None:
        found |= _OWN_RAY
        found["RAY_ROTATION_MAX_BYTES"] = str(settings.log.size)
        found["RAY_ROTATION_BACKUP_COUNT"] = str(settings.log.files)
    else:
        # Those of the operator apply to a cluster that is joined, but for secrets.
        found |= {
            name: value
            for name, value in os.environ.items()
            if name.startswith("RAY_") and name not in _SECRETS
        }
    if token is not None:
        found |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token.absolute())}
    return found


def folder_of(data_dir: Path) -> Path:
    """The folder for the sockets of our own Ray, the same at each start; socket paths are short."""
    name = hashlib.sha256(str(data_dir.absolute()).encode()).hexdigest()[:10]
    folder = Path(tempfile.gettempdir()) / f"dzflow-ray-{os.getuid()}-{name}"
    if len(str(folder)) > _LONGEST:
        folder = Path("/tmp") / folder.name  # noqa: S108 - it is made private below
    return folder


def temporary_folder(data_dir: Path) -> Path:
    """Make that folder, after removing the files of an earlier start.

    Give Ray a folder below it: Ray makes the folder that it is given readable by everybody.
    """
    folder = folder_of(data_dir)
    if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.getuid()):
        raise NoRay(f"{folder} belongs to another user; remove it")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise NoRay(f"{folder} cannot be made: {error.strerror}; remove it") from None
    return folder
