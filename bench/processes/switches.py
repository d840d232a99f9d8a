"""Runs emulated switches in a separate process, as the service does, for the peers to drive."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from configurators.gc_tuning import tune_garbage_collector
from sdn.emulator import EmulatedNetwork, SwitchModel
from sdn.network.events import SwitchUp
from sdn.network.topologies import topology
from sdn.openflow.driver import OpenFlowDriver

STOP_TIMEOUT = 10.0  # seconds
CONNECT_TIMEOUT = 60.0  # seconds


@contextmanager
def emulated_switches(name: str, port: int, acknowledge_after: float = 0.0) -> Iterator[int]:
    """Run the switches of a topology, which connect to this port; yields the process id."""
    command = [
        sys.executable,
        "-m",
        "bench.processes.switches",
        name,
        str(port),
        str(acknowledge_after),
    ]
    # The process ends when its standard input closes, so also when this process dies.
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: S603
        try:
            yield process.pid
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(STOP_TIMEOUT)


async def wait_until_up(driver: OpenFlowDriver, count: int) -> None:
    """Wait until this many switches are connected to the driver and set up."""
    up: set[str] = set()
    async with asyncio.timeout(CONNECT_TIMEOUT):
        while len(up) < count:
            event = await driver.events.get()
            if isinstance(event, SwitchUp):
                up.add(event.switch)


async def _run(name: str, port: int, acknowledge_after: float) -> None:
    tune_garbage_collector()  # as the service does
    model = SwitchModel(acknowledge_after=acknowledge_after)
    async with EmulatedNetwork(topology(name), [("127.0.0.1", port)], model=model):
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
