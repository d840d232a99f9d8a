"""The ONOS stand-in in its own process, for tests of the whole service."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

_PROJECT = Path(__file__).resolve().parents[2]
_STOP_WITHIN = 10.0  # seconds


class RunningStandIn(Struct, frozen=True):
    """Where a running stand-in is reached.

    `url` is ONOS's address without `/onos/v1`; `endpoints` are the UDP addresses at which
    applications reach the emulated hosts.
    """

    url: str
    user: str
    password: str
    endpoints: dict[str, tuple[str, int]]


@contextmanager
def stand_in_process(topology: str = "line:3", port: int = 0) -> Iterator[RunningStandIn]:
    """Run the stand-in on an emulated network of this topology (a name or a file)."""
    command = [
        sys.executable, "-m", "tests.onos_standin", "--topology", topology, "--port", str(port),
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=_PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the ONOS stand-in did not start; its error output says why")
        yield msgspec.json.decode(line, type=RunningStandIn)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
