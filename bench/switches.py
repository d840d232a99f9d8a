"""Emulated switches in a process of their own, as the service has them, for its peers to drive."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from configurators.gc_tuning import tune_garbage_collector
from sdn.emulator import EmulatedNetwork, SwitchModel
from sdn.topologies import topology

STOP = 10.0  # seconds for the process to end


@contextmanager
def switches(name: str, port: int, acknowledge_after: float = 0.0) -> Iterator[int]:
    """The switches of a topology connect to this port; gives the process that has them."""
    command = [sys.executable, "-m", "bench.switches", name, str(port), str(acknowledge_after)]
    # It ends when its input does, so also when this process dies.
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: S603
        try:
            yield process.pid
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(STOP)


async def _run(name: str, port: int, acknowledge_after: float) -> None:
    tune_garbage_collector()  # as the service does
    model = SwitchModel(acknowledge_after=acknowledge_after)
    async with EmulatedNetwork(topology(name), [("127.0.0.1", port)], model=model):
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
