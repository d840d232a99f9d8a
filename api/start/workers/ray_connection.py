"""The Ray that workers run on: started for this process, or joined.

Ray reads the environment when it is imported: import this module only in a process that was started
with `ray_environment.environment`.
"""

import logging
import shutil
from pathlib import Path

import ray
from msgspec import Struct
from ray.exceptions import RayError

from api.start.settings.settings import Settings
from api.start.workers.ray_environment import NoRay, temporary_folder

OBJECT_STORE_BYTES = 80 << 20  # we store nothing in it; Ray does not allow less


class Node(Struct, frozen=True):
    """A machine of the cluster, and the CPUs that Ray has there."""

    id: str
    address: str
    cpus: float = 0.0


class RayConnection:
    """A Ray that was started (`own`) or is joined; for one process, once."""

    def __init__(self, settings: Settings) -> None:
        self.own = settings.ray.address is None
        self._settings = settings
        self._folder: Path | None = None

    def start(self) -> None:
        """Start or join Ray."""
        if self.own:
            self._start_own()
        else:
            self._join()

    def stop(self) -> None:
        """Leave Ray, and end it if it is ours; detached actors of a Ray that was joined stay."""
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        """The address of Ray."""
        return str(ray.get_runtime_context().gcs_address)

    def nodes(self) -> list[Node]:
        """The machines that are alive."""
        return [
            Node(found["NodeID"], found["NodeManagerAddress"], found["Resources"].get("CPU", 0.0))
            for found in ray.nodes()  # type: ignore[no-untyped-call]
            if found["Alive"]
        ]

    def _start_own(self) -> None:
        self._folder = temporary_folder(self._settings.data_dir)
        try:
            ray.init(
                address="local",
                namespace=self._settings.ray.namespace,
                include_dashboard=False,
                # Ray starts as many processes ahead, which our actors then use.
                num_cpus=self._settings.configurators + self._settings.southbound,
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                _temp_dir=str(self._folder / "r"),
                _node_ip_address="127.0.0.1",
            )
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise NoRay(f"Ray does not start: {short(error)}") from error

    def _join(self) -> None:
        ray_settings = self._settings.ray
        try:
            ray.init(
                address=ray_settings.address,
                namespace=self._settings.ray.namespace,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise NoRay(
                f"the Ray cluster at {ray_settings.address} cannot be joined: {short(error)}; is"
                " this machine one of its nodes (`ray start --address=…`), with the same token?"
            ) from error


def short(error: BaseException) -> str:
    """The text of an error, in one line."""
    return " ".join(str(error).split())[:500]
